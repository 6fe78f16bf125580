//! Command that installs `PostgreSQL` on this system.

/// Returns an instruction such as ``install it (`sudo apt-get install postgresql`)``.
pub(crate) fn instruction() -> String {
    let release =
        if cfg!(target_os = "macos") { "ID=macos".to_owned() } else { std::fs::read_to_string("/etc/os-release").unwrap_or_default() };
    match install_command(&release) {
        Some(command) => format!("install it (`{command}`)"),
        None => "install PostgreSQL 15 or later".to_owned(),
    }
}

/// Selects the command from the text of an `os-release` file. `ID` takes precedence over `ID_LIKE`, which lists similar systems.
fn install_command(release: &str) -> Option<&'static str> {
    let value =
        |key: &str| release.lines().find_map(|line| line.strip_prefix(key)).map(|text| text.trim_matches(['"', '\'']).to_lowercase());
    let names = [value("ID="), value("ID_LIKE=")].into_iter().flatten().collect::<Vec<_>>().join(" ");
    names.split_whitespace().find_map(|name| {
        Some(match name {
            "debian" | "ubuntu" => "sudo apt-get install postgresql",
            "fedora" | "rhel" | "centos" => "sudo dnf install postgresql-server",
            "alpine" => "sudo apk add postgresql",
            "arch" => "sudo pacman -S postgresql",
            "suse" | "opensuse" => "sudo zypper install postgresql-server",
            "macos" => "brew install postgresql@17",
            _ => return None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::install_command;

    #[test]
    fn each_system_gets_its_own_command() {
        for (release, expected) in [
            ("PRETTY_NAME=x\nID=debian\n", "apt-get"),
            ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", "apt-get"),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "dnf"),
            ("ID=alpine\nVERSION_ID=3.20\n", "apk"),
            ("ID=manjaro\nID_LIKE=arch\n", "pacman"),
            ("ID=macos", "brew"),
        ] {
            assert!(install_command(release).is_some_and(|command| command.contains(expected)), "{release}");
        }
        assert_eq!(install_command("ID=plan9"), None);
    }
}
