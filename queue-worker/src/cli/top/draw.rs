//! A picture of what was seen, whatever the size of the terminal. Names of others are made inert here.

use std::time::Duration;

use queue_core::{
    operate::{Histogram, WorkerRecord},
    runner::percent,
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize as _},
    text::{Line, Span},
    widgets::{Paragraph, Row, Table},
};

use super::{
    look::{Look, Part, QueueFigures, Seen},
    view::View,
};
use crate::inert;

pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View, look: &Look) {
    let [head, body, foot] = Layout::vertical([Constraint::Length(2), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    frame.render_widget(Paragraph::new(heading(view, look)), head);
    let keys = format!(" q quit  arrows move  tab part  s sort by {}", view.order.name());
    frame.render_widget(Paragraph::new(Line::from(keys).dim()), foot);
    let Some(seen) = &look.seen else { return };
    for (part, area) in places(view.part, body) {
        let (name, header, widths, rows) = match part {
            Part::Queues => queues(view, seen),
            Part::Workers => workers(seen),
            Part::Running => running(seen),
        };
        // Its title and its header.
        let fit = usize::from(area.height.saturating_sub(2));
        let from = view.first(part, rows.len(), fit);
        let shown = rows.len().min(from + fit);
        let range = if shown - from < rows.len() { format!(" ({} to {shown} of {})", from + 1, rows.len()) } else { String::new() };
        let [top, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        let style = if part == view.part { Style::new().bold().fg(Color::Cyan) } else { Style::new().bold() };
        let title = vec![Span::styled(format!("{name}{range}"), style), Span::from(refusals(seen, part)).bold().red()];
        frame.render_widget(Paragraph::new(Line::from(title)), top);
        let rows = rows.into_iter().skip(from).take(fit).map(Row::new);
        frame.render_widget(Table::new(rows, widths).header(Row::new(header).dim()).column_spacing(1), rest);
    }
}

/// Why a part is not as it is now.
fn refusals(seen: &Seen, part: Part) -> String {
    let of_part = seen.refused.iter().filter(|refused| refused.part == part);
    let said = of_part.map(|refused| match refused.since {
        Some(since) => format!("  no {} for {}: {}", refused.what, span(since.elapsed()), refused.why),
        None => format!("  no {}: {}", refused.what, refused.why),
    });
    said.collect()
}

/// Where each part stands: one above the other, or the chosen one alone where there is no room for more.
fn places(chosen: Part, area: Rect) -> Vec<(Part, Rect)> {
    const EACH: u16 = 5;
    if area.height < EACH * 3 {
        return vec![(chosen, area)];
    }
    let heights = Part::ALL.map(|part| if part == chosen { Constraint::Fill(2) } else { Constraint::Fill(1) });
    Part::ALL.into_iter().zip(Layout::vertical(heights).split(area).iter().copied()).collect()
}

fn heading(view: &View, look: &Look) -> Vec<Line<'static>> {
    let schema = if look.schema.is_empty() { view.schema } else { look.schema };
    let first = look.seen.as_ref().map_or_else(|| format!(" {schema}"), |seen| format!(" {schema}{}{}", sums(seen), last_minute(seen)));
    let second = match (&look.away, &look.seen) {
        (Some(why), Some(seen)) => {
            Line::styled(format!(" no look for {}: {}", span(seen.at.elapsed()), inert::line(why)), Style::new().bold().fg(Color::Red))
        }
        (Some(why), None) => Line::styled(format!(" {}", inert::line(why)), Style::new().bold().fg(Color::Red)),
        (None, None) => Line::from(" looking").dim(),
        (None, Some(_)) => Line::default(),
    };
    vec![Line::from(first).bold(), second]
}

/// How many there are of what.
fn sums(seen: &Seen) -> String {
    let sum = |of: fn(&QueueFigures) -> i64| seen.queues.iter().map(of).sum::<i64>();
    let plus = if seen.more > 0 || seen.queues.iter().any(|queue| queue.partial) { "+" } else { "" };
    let alive = |workers: &Vec<WorkerRecord>| workers.iter().filter(|worker| worker.alive).count().to_string();
    let alive = seen.workers.as_ref().map_or_else(|| "?".to_owned(), alive);
    let jobs = |of| if seen.is_counted { sum(of).to_string() } else { "?".to_owned() };
    format!("  ready {}{plus}  running {}  workers {alive}", jobs(|queue| queue.ready), jobs(|queue| queue.running))
}

fn last_minute(seen: &Seen) -> String {
    let Some(minute) = &seen.minute else { return String::new() };
    let quantile = |of: &Histogram, share| of.quantile(share).map_or_else(|| "-".to_owned(), span);
    let (rate, failed) = (minute.rate(), minute.failed());
    let start = format!("start p50 {} p99 {}", quantile(&minute.start, 0.5), quantile(&minute.start, 0.99));
    format!("  last minute: {rate:.1}/s, {failed} failed, {start}, run p99 {}", quantile(&minute.run, 0.99))
}

/// The name, the names of the columns, their widths, and the rows.
type Content = (&'static str, Vec<&'static str>, Vec<Constraint>, Vec<Vec<String>>);

fn columns(first: u16, others: &[u16]) -> Vec<Constraint> {
    std::iter::once(Constraint::Min(first)).chain(others.iter().map(|width| Constraint::Length(*width))).collect()
}

fn queues(view: &View, seen: &Seen) -> Content {
    let rows = view.sorted(&seen.queues).into_iter().map(|queue| {
        let ready = format!("{}{}", queue.ready, if queue.partial { "+" } else { "" });
        let counted = |jobs: String| if seen.is_counted { jobs } else { "?".to_owned() };
        let oldest = queue.oldest.map_or_else(|| "-".to_owned(), span);
        let start = queue.start.quantile(0.99).map_or_else(|| "-".to_owned(), span);
        vec![
            inert::line(&queue.name),
            counted(ready),
            oldest,
            counted(queue.running.to_string()),
            format!("{:.1}", queue.rate),
            queue.failed.to_string(),
            start,
            counted(queue.later.to_string()),
            counted(queue.dead.to_string()),
        ]
    });
    let header = vec!["queue", "ready", "oldest", "running", "done/s", "failed", "start p99", "later", "dead"];
    ("Queues", header, columns(12, &[9, 7, 7, 8, 7, 9, 8, 7]), rows.collect())
}

fn workers(seen: &Seen) -> Content {
    let rows = seen.workers.iter().flatten().map(|worker| {
        let left = worker.expires_at - worker.started_at;
        let beat = if worker.alive { "alive".to_owned() } else { "silent".to_owned() };
        let queues = if worker.queues.is_empty() { "any".to_owned() } else { worker.queues.join(",") };
        let up = left.to_std().map_or_else(|_| "-".to_owned(), span);
        let place = inert::line(&format!("{}:{}", worker.host, worker.pid));
        let slots = worker.busy.zip(worker.slots).map_or_else(|| "-".to_owned(), |(busy, slots)| format!("{busy}/{slots}"));
        let memory = worker.memory.map_or_else(|| "-".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
        vec![inert::line(&worker.name), place, beat, worker.jobs.to_string(), slots, memory, up, inert::line(&queues)]
    });
    let header = vec!["worker", "host:pid", "heartbeat", "jobs", "slots", "memory", "up", "queues"];
    ("Workers", header, columns(12, &[22, 9, 6, 7, 8, 7, 20]), rows.collect())
}

fn running(seen: &Seen) -> Content {
    let rows = seen.running.iter().flatten().map(|job| {
        let said = job.progress.as_ref().map(|progress| {
            let done = progress.fraction.map_or_else(String::new, |fraction| format!("{:3}% ", percent(fraction)));
            done + progress.stage.as_deref().unwrap_or_default()
        });
        let attempt = format!("{}/{}", job.attempts, job.max_attempts);
        vec![job.id.to_string(), inert::line(&job.job_type), inert::line(&job.queue), attempt, inert::line(&said.unwrap_or_default())]
    });
    let header = vec!["job", "type", "queue", "attempt", "progress"];
    ("Running", header, columns(20, &[20, 14, 8, 24]), rows.collect())
}

fn span(span: Duration) -> String {
    match span.as_secs() {
        0 => format!("{}ms", span.as_millis()),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        seconds @ 3600..86_400 => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        seconds => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ratatui::{Terminal, backend::TestBackend};

    use super::{super::look::Refused, *};

    fn queue(name: &str, ready: i64, rate: f64) -> QueueFigures {
        QueueFigures { name: name.to_owned(), ready, rate, oldest: Some(Duration::from_secs(90)), failed: 3, ..QueueFigures::default() }
    }

    fn look(queues: Vec<QueueFigures>) -> Look {
        let seen = Seen { queues, is_counted: true, workers: Some(Vec::new()), ..Seen::of(Instant::now(), std::iter::empty(), Vec::new()) };
        Look { schema: "queue", seen: Some(seen), away: None }
    }

    /// The lines of the picture.
    fn drawn(width: u16, height: u16, view: &mut View, look: &Look) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view, look)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn queues_stand_in_the_order_that_is_asked_for() {
        let look = look(vec![queue("a", 1, 9.0), queue("b", 70, 1.0), queue("c", 7, 0.0)]);
        let mut view = View::new("queue");
        let first = |view: &mut View| {
            let lines = drawn(100, 30, view, &look);
            let title = lines.iter().position(|line| line == "Queues").unwrap();
            lines[title + 2].clone()
        };
        let shown = first(&mut view);
        assert!(shown.starts_with('b') && shown.contains("70") && shown.contains("1m30s"), "{shown}");
        for (times, wanted) in [(2, 'a'), (2, 'a')] {
            (0..times).for_each(|_| view.sort_by_next());
            assert!(first(&mut view).starts_with(wanted), "{:?}", view.order);
        }
        assert!(drawn(100, 30, &mut view, &look)[0].contains("ready 78"));
    }

    #[test]
    fn no_terminal_is_too_small_and_no_row_too_far() {
        let look = look((0..40).map(|n| queue(&format!("q{n:02}"), 1000 - n, 0.0)).collect());
        let mut view = View::new("queue");
        for (width, height) in [(1, 1), (2, 40), (200, 3), (20, 5), (80, 24), (300, 100)] {
            for _ in 0..4 {
                view.turn(true);
                drawn(width, height, &mut view, &look);
            }
        }
        let mut view = View::new("queue");
        assert!(drawn(80, 10, &mut view, &look).join("\n").contains("Queues (1 to 5 of 40)"));
        view.move_by(7);
        assert!(drawn(80, 10, &mut view, &look)[4].starts_with("q07"), "it moves by rows");
        view.move_by(1000);
        assert!(drawn(80, 10, &mut view, &look).join("\n").contains("q39"), "the end is the end");
        view.move_by(-1000);
        assert!(drawn(80, 10, &mut view, &look)[4].starts_with("q00"));
    }

    #[test]
    fn what_was_refused_is_said_in_its_place_and_the_rest_is_shown() {
        let mut look = look(vec![queue("mail", 5, 0.0)]);
        let seen = look.seen.as_mut().unwrap();
        let refused = |part, what, why: &str, since| Refused { part, what, why: why.to_owned(), since };
        seen.refused = vec![
            refused(Part::Workers, "workers", "permission denied", None),
            refused(Part::Queues, "oldest", "too slow", Instant::now().checked_sub(Duration::from_secs(7))),
        ];
        seen.workers = None;
        let lines = drawn(100, 30, &mut View::new("queue"), &look);
        assert!(lines[0].contains("ready 5") && lines[0].contains("workers ?"), "{lines:?}");
        let text = lines.join("\n");
        for wanted in ["Workers  no workers: permission denied", "Queues  no oldest for 7s: too slow", "mail"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        look.seen.as_mut().unwrap().is_counted = false;
        let text = drawn(100, 30, &mut View::new("queue"), &look).join("\n");
        assert!(text.contains("ready ?") && !text.contains("ready 5"), "what was not counted is not said to be none: {text}");
    }

    #[test]
    fn what_was_seen_stays_while_the_database_is_away_and_names_are_inert() {
        let mut look = look(vec![queue("evil\u{1b}[31m", 5, 0.0)]);
        look.away = Some("connection refused\u{7}".to_owned());
        let lines = drawn(100, 30, &mut View::new("queue"), &look).join("\n");
        assert!(lines.contains("connection refused") && lines.contains("evil") && lines.contains("no look for"), "{lines}");
        assert!(!lines.contains('\u{1b}') && !lines.contains('\u{7}'));
        let nothing = Look { schema: "queue", seen: None, away: Some("no way in".to_owned()) };
        assert!(drawn(60, 6, &mut View::new("queue"), &nothing)[1].contains("no way in"));
    }
}
