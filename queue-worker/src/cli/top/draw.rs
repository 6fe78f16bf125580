//! Renders the screen of `top` at any terminal size. Escapes control characters in names.

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
    state::{Panel, QueueMetrics, StoreSnapshot, TopState},
    view::View,
};
use crate::escape;

pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View, state: &TopState) {
    let [head, body, foot] = Layout::vertical([Constraint::Length(2), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    frame.render_widget(Paragraph::new(heading(view, state)), head);
    let keys = format!(" q quit  arrows move  tab part  s sort by {}", view.order.name());
    frame.render_widget(Paragraph::new(Line::from(keys).dim()), foot);
    let Some(seen) = &state.seen else { return };
    for (part, area) in panel_areas(view.part, body) {
        let (name, header, widths, rows) = match part {
            Panel::Queues => queues(view, seen),
            Panel::Workers => workers(seen),
            Panel::Running => running(seen),
        };
        // The panel's title and header take one line each.
        let fit = usize::from(area.height.saturating_sub(2));
        let from = view.first(part, rows.len(), fit);
        let shown = rows.len().min(from + fit);
        let range = if shown - from < rows.len() { format!(" ({} to {shown} of {})", from + 1, rows.len()) } else { String::new() };
        let [top, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        let style = if part == view.part { Style::new().bold().fg(Color::Cyan) } else { Style::new().bold() };
        let title = vec![Span::styled(format!("{name}{range}"), style), Span::from(format_refusals(seen, part)).bold().red()];
        frame.render_widget(Paragraph::new(Line::from(title)), top);
        let rows = rows.into_iter().skip(from).take(fit).map(Row::new);
        frame.render_widget(Table::new(rows, widths).header(Row::new(header).dim()).column_spacing(1), rest);
    }
}

/// Formats the reasons why a panel is not up to date.
fn format_refusals(seen: &StoreSnapshot, part: Panel) -> String {
    let of_part = seen.refused.iter().filter(|refused| refused.part == part);
    let refusals = of_part.map(|refused| match refused.since {
        Some(since) => format!("  no {} for {}: {}", refused.what, span(since.elapsed()), refused.why),
        None => format!("  no {}: {}", refused.what, refused.why),
    });
    refusals.collect()
}

/// Returns the areas of the visible panels. Stacks all panels if there is enough space. Otherwise only the selected panel is visible.
fn panel_areas(chosen: Panel, area: Rect) -> Vec<(Panel, Rect)> {
    const EACH: u16 = 5;
    if area.height < EACH * 3 {
        return vec![(chosen, area)];
    }
    let heights = Panel::ALL.map(|part| if part == chosen { Constraint::Fill(2) } else { Constraint::Fill(1) });
    Panel::ALL.into_iter().zip(Layout::vertical(heights).split(area).iter().copied()).collect()
}

fn heading(view: &View, state: &TopState) -> Vec<Line<'static>> {
    let schema = if state.schema.is_empty() { view.schema } else { state.schema };
    let first =
        state.seen.as_ref().map_or_else(|| format!(" {schema}"), |seen| format!(" {schema}{}{}", format_totals(seen), last_minute(seen)));
    let second = match (&state.away, &state.seen) {
        (Some(why), Some(seen)) => {
            Line::styled(format!(" no data for {}: {}", span(seen.at.elapsed()), escape::line(why)), Style::new().bold().fg(Color::Red))
        }
        (Some(why), None) => Line::styled(format!(" {}", escape::line(why)), Style::new().bold().fg(Color::Red)),
        (None, None) => Line::from(" loading").dim(),
        (None, Some(_)) => Line::default(),
    };
    vec![Line::from(first).bold(), second]
}

/// Formats the totals over all queues.
fn format_totals(seen: &StoreSnapshot) -> String {
    let sum = |of: fn(&QueueMetrics) -> i64| seen.queues.iter().map(of).sum::<i64>();
    let plus = if seen.more > 0 || seen.queues.iter().any(|queue| queue.partial) { "+" } else { "" };
    let alive = |workers: &Vec<WorkerRecord>| workers.iter().filter(|worker| worker.alive).count().to_string();
    let alive = seen.workers.as_ref().map_or_else(|| "?".to_owned(), alive);
    let jobs = |of| if seen.is_counted { sum(of).to_string() } else { "?".to_owned() };
    format!("  ready {}{plus}  running {}  workers {alive}", jobs(|queue| queue.ready), jobs(|queue| queue.running))
}

fn last_minute(seen: &StoreSnapshot) -> String {
    let Some(minute) = &seen.minute else { return String::new() };
    let quantile = |of: &Histogram, share| of.quantile(share).map_or_else(|| "-".to_owned(), span);
    let (rate, failed) = (minute.rate(), minute.failed());
    let start = format!("start p50 {} p99 {}", quantile(&minute.start, 0.5), quantile(&minute.start, 0.99));
    format!("  last minute: {rate:.1}/s, {failed} failed, {start}, run p99 {}", quantile(&minute.run, 0.99))
}

/// Title, header, column widths and rows of a panel.
type Content = (&'static str, Vec<&'static str>, Vec<Constraint>, Vec<Vec<String>>);

fn columns(first: u16, others: &[u16]) -> Vec<Constraint> {
    std::iter::once(Constraint::Min(first)).chain(others.iter().map(|width| Constraint::Length(*width))).collect()
}

fn queues(view: &View, seen: &StoreSnapshot) -> Content {
    let rows = view.sorted(&seen.queues).into_iter().map(|queue| {
        let ready = format!("{}{}", queue.ready, if queue.partial { "+" } else { "" });
        let counted = |jobs: String| if seen.is_counted { jobs } else { "?".to_owned() };
        let oldest = queue.oldest.map_or_else(|| "-".to_owned(), span);
        let start = queue.start.quantile(0.99).map_or_else(|| "-".to_owned(), span);
        vec![
            escape::line(&queue.name),
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

fn workers(seen: &StoreSnapshot) -> Content {
    let rows = seen.workers.iter().flatten().map(|worker| {
        let left = worker.expires_at - worker.started_at;
        let beat = if worker.alive { "alive".to_owned() } else { "silent".to_owned() };
        let queues = if worker.queues.is_empty() { "all".to_owned() } else { worker.queues.join(",") };
        let up = left.to_std().map_or_else(|_| "-".to_owned(), span);
        let place = escape::line(&format!("{}:{}", worker.host, worker.pid));
        let slots = worker.busy.zip(worker.slots).map_or_else(|| "-".to_owned(), |(busy, slots)| format!("{busy}/{slots}"));
        let memory = worker.memory.map_or_else(|| "-".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
        vec![escape::line(&worker.name), place, beat, worker.jobs.to_string(), slots, memory, up, escape::line(&queues)]
    });
    let header = vec!["worker", "host:pid", "heartbeat", "jobs", "slots", "memory", "up", "queues"];
    ("Workers", header, columns(12, &[22, 9, 6, 7, 8, 7, 20]), rows.collect())
}

fn running(seen: &StoreSnapshot) -> Content {
    let rows = seen.running.iter().flatten().map(|job| {
        let text = job.progress.as_ref().map(|progress| {
            let done = progress.fraction.map_or_else(String::new, |fraction| format!("{:3}% ", percent(fraction)));
            done + progress.stage.as_deref().unwrap_or_default()
        });
        let attempt = format!("{}/{}", job.attempts, job.max_attempts);
        vec![job.id.to_string(), escape::line(&job.job_type), escape::line(&job.queue), attempt, escape::line(&text.unwrap_or_default())]
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

    use super::{super::state::RefusedQuery, *};

    fn queue(name: &str, ready: i64, rate: f64) -> QueueMetrics {
        QueueMetrics { name: name.to_owned(), ready, rate, oldest: Some(Duration::from_secs(90)), failed: 3, ..QueueMetrics::default() }
    }

    fn state(queues: Vec<QueueMetrics>) -> TopState {
        let seen = StoreSnapshot {
            queues,
            is_counted: true,
            workers: Some(Vec::new()),
            ..StoreSnapshot::of(Instant::now(), std::iter::empty(), Vec::new())
        };
        TopState { schema: "queue", seen: Some(seen), away: None }
    }

    /// Renders the state and returns the lines of the screen.
    fn drawn(width: u16, height: u16, view: &mut View, state: &TopState) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn queues_are_in_the_selected_order() {
        let state = state(vec![queue("a", 1, 9.0), queue("b", 70, 1.0), queue("c", 7, 0.0)]);
        let mut view = View::new("queue");
        let first = |view: &mut View| {
            let lines = drawn(100, 30, view, &state);
            let title = lines.iter().position(|line| line == "Queues").unwrap();
            lines[title + 2].clone()
        };
        let shown = first(&mut view);
        assert!(shown.starts_with('b') && shown.contains("70") && shown.contains("1m30s"), "{shown}");
        for (times, expected) in [(2, 'a'), (2, 'a')] {
            (0..times).for_each(|_| view.sort_by_next());
            assert!(first(&mut view).starts_with(expected), "{:?}", view.order);
        }
        assert!(drawn(100, 30, &mut view, &state)[0].contains("ready 78"));
    }

    #[test]
    fn any_terminal_size_and_scroll_position_works() {
        let state = state((0..40).map(|n| queue(&format!("q{n:02}"), 1000 - n, 0.0)).collect());
        let mut view = View::new("queue");
        for (width, height) in [(1, 1), (2, 40), (200, 3), (20, 5), (80, 24), (300, 100)] {
            for _ in 0..4 {
                view.turn(true);
                drawn(width, height, &mut view, &state);
            }
        }
        let mut view = View::new("queue");
        assert!(drawn(80, 10, &mut view, &state).join("\n").contains("Queues (1 to 5 of 40)"));
        view.move_by(7);
        assert!(drawn(80, 10, &mut view, &state)[4].starts_with("q07"), "it moves by rows");
        view.move_by(1000);
        assert!(drawn(80, 10, &mut view, &state).join("\n").contains("q39"), "the end is the end");
        view.move_by(-1000);
        assert!(drawn(80, 10, &mut view, &state)[4].starts_with("q00"));
    }

    #[test]
    fn a_refused_query_is_reported_in_its_panel() {
        let mut state = state(vec![queue("mail", 5, 0.0)]);
        let seen = state.seen.as_mut().unwrap();
        let refused = |part, what, why: &str, since| RefusedQuery { part, what, why: why.to_owned(), since };
        seen.refused = vec![
            refused(Panel::Workers, "workers", "permission denied", None),
            refused(Panel::Queues, "oldest", "too slow", Instant::now().checked_sub(Duration::from_secs(7))),
        ];
        seen.workers = None;
        let lines = drawn(100, 30, &mut View::new("queue"), &state);
        assert!(lines[0].contains("ready 5") && lines[0].contains("workers ?"), "{lines:?}");
        let text = lines.join("\n");
        for expected in ["Workers  no workers: permission denied", "Queues  no oldest for 7s: too slow", "mail"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        state.seen.as_mut().unwrap().is_counted = false;
        let text = drawn(100, 30, &mut View::new("queue"), &state).join("\n");
        assert!(text.contains("ready ?") && !text.contains("ready 5"), "unknown counts are not shown as zero: {text}");
    }

    #[test]
    fn the_last_data_stays_while_the_database_is_unavailable_and_names_are_inert() {
        let mut state = state(vec![queue("evil\u{1b}[31m", 5, 0.0)]);
        state.away = Some("connection refused\u{7}".to_owned());
        let lines = drawn(100, 30, &mut View::new("queue"), &state).join("\n");
        assert!(lines.contains("connection refused") && lines.contains("evil") && lines.contains("no data for"), "{lines}");
        assert!(!lines.contains('\u{1b}') && !lines.contains('\u{7}'));
        let nothing = TopState { schema: "queue", seen: None, away: Some("no way in".to_owned()) };
        assert!(drawn(60, 6, &mut View::new("queue"), &nothing)[1].contains("no way in"));
    }
}
