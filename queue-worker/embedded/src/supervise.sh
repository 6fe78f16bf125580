# Runs one PostgreSQL server while it has users. queue-worker writes this file at each start of the server.
#
#   sh supervise.sh FOLDER SHORT EPHEMERAL COMMAND...
#
# FOLDER is the cluster's folder, SHORT the folder of the socket if it is a different one, EPHEMERAL "yes" to remove FOLDER
# at the end, COMMAND the server. Standard input is alive.lock, locked. All processes of the server keep it open, so the lock
# is free only when none of them is left.
folder=$1 short=$2 ephemeral=$3
shift 3
cd / || exit
umask 077
exec 5<&0 </dev/null >>"$folder/postgres.log" 2>&1 3<&- 4<&- 6<&- 7<&- 8<&- 9<&-
# Opened before the server starts: a process that finds the server ready can rely on its users being watched.
exec 4<>"$folder/users" 3<"$folder/users" 4>&-

# Reads to end of file: until no user is left.
drain() {
    while read -r _ <&3; do :; done
}

# Returns when the last user has left and none can join (see users.rs).
watch() {
    while [ -e "$folder/users" ] || [ -e "$folder/closing" ]; do
        drain
        mv "$folder/users" "$folder/closing"
        drain
        mv "$folder/closing" "$folder/closed" && break
    done 2>/dev/null
    exec 3<&-
}

# Stops the server, even during its start, and cleans up if the main process was killed.
stop() {
    tries=0
    while [ $tries -lt 60 ]; do
        read -r server <"$folder/server.pid"
        kill -INT "$server" || kill -0 $$ || { clean; return; }
        tries=$((tries + 1))
        nap
    done 2>/dev/null
}

# sleep outlives a killed script by up to a second, so it must hold neither lock nor FIFO.
nap() {
    sleep 1 </dev/null 3<&- 5<&-
}

clean() {
    [ -z "$short" ] || rmdir "$short"
    [ "$ephemeral" = yes ] || return
    # The locks last: while they exist, no process starts a server in a folder that is being removed.
    for path in "$folder"/* "$folder"/.[!.]*; do
        case $path in */start.lock | */alive.lock) ;; *) rm -rf "$path" ;; esac
    done
    rm -f "$folder/start.lock"
    rm -f "$folder/alive.lock"
    rmdir "$folder"
} 2>/dev/null

# Runs the server once and returns its exit status. The first call also starts the watcher of its users.
run() {
    "$@" <&5 5<&- 3<&- &
    server=$!
    echo $server >"$folder/server.pid"
    if [ -z "$watcher" ]; then
        { watch; stop; } <&5 &
        watcher=$!
        exec 3<&-
    fi
    wait $server
    status=$?
    # A signal to this script ends the wait, not the server.
    while [ $status -gt 128 ] && kill -0 $server 2>/dev/null; do
        wait $server
        status=$?
    done
    return $status
}

watcher='' stopping=''
trap 'stopping=yes; kill -INT $server' HUP INT TERM

# Restarts a crashed server for its users, up to five times a minute, but not one that fails to start.
left=5
while [ -z "$stopping" ] && [ ! -e "$folder/closed" ]; do
    began=$(date +%s)
    run "$@"
    status=$?
    [ $status -ne 0 ] || break
    [ $(($(date +%s) - began)) -lt 60 ] || left=5
    [ $status -gt 128 ] || [ $left -lt 5 ] || break
    [ $left -gt 0 ] || break
    left=$((left - 1))
    echo "supervise.sh: the server exited with status $status; restarting"
    nap
done
kill $watcher 2>/dev/null
wait $watcher 2>/dev/null
clean
