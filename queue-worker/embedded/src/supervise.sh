# Runs one PostgreSQL server for as long as somebody uses it. Written here by queue-worker at each start of the server.
#
#   sh supervise.sh FOLDER SHORT EPHEMERAL COMMAND...
#
# FOLDER is the cluster's folder, SHORT the folder of the socket if that is elsewhere, EPHEMERAL "yes" if FOLDER is to be
# removed at the end, COMMAND the server. Standard input is alive.lock, locked: all that belongs to the server keeps it
# open, so the lock is free only when nothing of it is left.
folder=$1 short=$2 ephemeral=$3
shift 3
cd / || exit
umask 077
exec 5<&0 </dev/null >>"$folder/postgres.log" 2>&1 3<&- 4<&- 6<&- 7<&- 8<&- 9<&-
# From the start on, so that whoever finds the server ready also finds its users watched.
exec 4<>"$folder/users" 3<"$folder/users" 4>&-

# Reads to the end of file: until no user is left.
drain() {
    while read -r _ <&3; do :; done
}

# Ends when the last user has gone for good (users.rs tells how).
watch() {
    while [ -e "$folder/users" ] || [ -e "$folder/closing" ]; do
        drain
        mv "$folder/users" "$folder/closing"
        drain
        mv "$folder/closing" "$folder/closed" && break
    done 2>/dev/null
    exec 3<&-
}

# Stops the server, also one that is just being started, and cleans up if the main process was killed.
stop() {
    tries=0
    while [ $tries -lt 60 ]; do
        read -r server <"$folder/server.pid"
        kill -INT "$server" || kill -0 $$ || { clean; return; }
        tries=$((tries + 1))
        nap
    done 2>/dev/null
}

# Outlives a killed script by up to a second, so it must hold neither lock nor FIFO.
nap() {
    sleep 1 </dev/null 3<&- 5<&-
}

clean() {
    [ -z "$short" ] || rmdir "$short"
    [ "$ephemeral" = yes ] || return
    # The locks last: as long as they are there, nobody starts a new server among what is being removed.
    for path in "$folder"/* "$folder"/.[!.]*; do
        case $path in */start.lock | */alive.lock) ;; *) rm -rf "$path" ;; esac
    done
    rm -f "$folder/start.lock"
    rm -f "$folder/alive.lock"
    rmdir "$folder"
} 2>/dev/null

# Runs the server once, from the first time on with somebody who watches its users. Returns its exit status.
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
    # A signal to us ends the wait, not the server.
    while [ $status -gt 128 ] && kill -0 $server 2>/dev/null; do
        wait $server
        status=$?
    done
    return $status
}

watcher='' stopping=''
trap 'stopping=yes; kill -INT $server' HUP INT TERM

# A server that crashed is started again for those who use it, up to five times a minute; one that fails at once is not.
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
    echo "supervise.sh: the server ended with status $status; starting it again"
    nap
done
kill $watcher 2>/dev/null
wait $watcher 2>/dev/null
clean
