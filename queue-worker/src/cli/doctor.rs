//! `doctor` command: checks a store and its server, and reports problems, their consequences and their fixes.

use std::process::ExitCode;

use queue_core::operate::{Checkup, Diagnosis, Finding, FindingKind, Severity};

use super::{
    open::open,
    print,
    problem::Problem,
    settings::Settings,
    span::Span,
    values::{OutputArgs, whole_in},
};
use crate::{escape, program::commands};

/// Arguments of `doctor`.
#[derive(clap::Args)]
pub(super) struct DoctorArgs {
    /// Exit with code 1 if the worst finding is a warning
    #[arg(long)]
    strict: bool,
    /// Ignore findings of this kind, such as `open_transactions`; may be repeated
    #[arg(long, value_name = "KIND", value_parser = kind)]
    ignore: Vec<FindingKind>,
    /// Age of an open transaction above which it is reported (default: 5m)
    #[arg(long, value_name = "DURATION")]
    transaction: Option<Span>,
    /// Number of dead rows in a table above which it is reported (default: 500000)
    #[arg(long, value_name = "N", value_parser = whole_in::<u32>(0..=u32::MAX))]
    dead_rows: Option<u32>,
    /// Network whose connections need no encryption, such as 10.0.0.0/8; may be repeated. Local connections never need encryption
    #[arg(long, value_name = "CIDR", value_parser = network)]
    trusted_network: Vec<String>,
    /// Prefix of the store's role names (default: the schema)
    #[arg(long, value_name = "NAME")]
    role_prefix: Option<String>,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Exit code with `--strict` if the worst finding is a warning.
const WARNED: u8 = 1;
/// Exit code if the worst finding is a broken store or server.
const BROKEN: u8 = 2;

impl DoctorArgs {
    fn checkup(&self) -> Checkup {
        let mut checkup = Checkup { role_prefix: self.role_prefix.clone(), ..Checkup::default() };
        checkup.transaction = self.transaction.map_or(checkup.transaction, |span| span.0);
        checkup.dead_rows = self.dead_rows.unwrap_or(checkup.dead_rows);
        checkup.trusted_networks.extend(self.trusted_network.iter().cloned());
        checkup
    }
}

pub(super) async fn doctor(settings: &Settings, args: &DoctorArgs) -> Result<ExitCode, Problem> {
    let store = settings.store()?;
    let mut diagnosis = match open(settings).await {
        Ok(database) => {
            let diagnosis = database.queue().store(store).doctor(&args.checkup()).await;
            database.close().await;
            diagnosis
        }
        // Errors in the settings are usage errors, not findings.
        Err(problem) if problem.is_usage() => return Err(problem),
        Err(problem) => Diagnosis::unreachable(store, &problem.to_string()),
    };
    diagnosis.findings.retain(|finding| !args.ignore.contains(&finding.kind));
    for text in diagnosis.findings.iter_mut().flat_map(|finding| [&mut finding.message, &mut finding.fix]) {
        *text = commands(text).into_owned();
    }
    if args.output.json {
        print::json(&diagnosis)?;
    } else {
        print::lines(&describe(&diagnosis))?;
    }
    Ok(match diagnosis.worst() {
        Some(Severity::Broken) => ExitCode::from(BROKEN),
        Some(Severity::Warning) if args.strict => ExitCode::from(WARNED),
        _ => ExitCode::SUCCESS,
    })
}

/// Formats the findings, worst first, and the number of findings.
fn describe(diagnosis: &Diagnosis) -> String {
    let mut lines: Vec<String> = diagnosis.findings.iter().map(finding).collect();
    let server = diagnosis.server.as_ref().map_or_else(String::new, |version| format!(" on PostgreSQL {}", escape::line(version)));
    let of = |severity: Severity| diagnosis.findings.iter().filter(|finding| finding.severity == severity).count();
    let counts =
        [(of(Severity::Broken), "broken", "broken"), (of(Severity::Warning), "warning", "warnings"), (of(Severity::Note), "note", "notes")];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }))
        .collect();
    let place = format!("schema {}{server}", diagnosis.schema);
    lines.push(if counts.is_empty() { format!("{place}: no problems found") } else { format!("{place}: {}", counts.join(", ")) });
    lines.join("\n")
}

fn finding(finding: &Finding) -> String {
    let Finding { kind, severity, message, consequence, fix, .. } = finding;
    format!("{severity}: {} [{kind}]\n  {consequence}\n  fix: {}\n", escape::line(message), escape::line(fix))
}

fn kind(text: &str) -> Result<FindingKind, &'static str> {
    text.parse().map_err(|_| "expected a kind of finding like `no_worker`; docs/DOCTOR.md lists all")
}

fn network(text: &str) -> Result<String, &'static str> {
    let (address, bits) = text.split_once('/').ok_or("expected a network like `10.0.0.0/8`")?;
    let most = match address.parse() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return Err("a network must begin with an address, as `10.0.0.0/8`"),
    };
    let fits = bits.parse::<u8>().is_ok_and(|bits| bits <= most);
    fits.then(|| text.to_owned()).ok_or("a network must end with its prefix length, as `10.0.0.0/8`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_validated_locally() {
        assert!(["10.0.0.0/8", "fd00::/8", "192.168.1.0/24"].iter().all(|good| network(good).is_ok()));
        assert!(["10.0.0.0", "10.0.0.0/33", "x/8", "fd00::/129", "10.0.0.0/8'"].iter().all(|bad| network(bad).is_err()));
    }
}
