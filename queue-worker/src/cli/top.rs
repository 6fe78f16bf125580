//! `top` command: monitors queues, workers and running jobs on a terminal until the user presses `q` or the process receives a signal.
//! The screen is updated every second. The command only reads from the database.
//!
//! The command has three parts. `query` queries the database in a separate task with its own connection, so that keys work while the
//! database is unavailable. `draw` renders the state, without access to the keyboard or the database. This module handles keys, signals and
//! timing.

mod query;
mod draw;
mod state;
mod view;

use std::{
    io::{IsTerminal as _, stdin, stdout},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
};
use tokio::sync::{mpsc, watch};

use self::{query::poll_store, state::TopState, view::View};
use super::{open::open_for_reading, problem::Problem, settings::Settings};
use crate::live::shutdown_signal;

/// Poll interval of the keyboard thread.
const KEY_INTERVAL: Duration = Duration::from_millis(100);

pub(super) async fn top(settings: &Settings) -> Result<ExitCode, Problem> {
    if !(stdin().is_terminal() && stdout().is_terminal()) {
        return Err(Problem::usage("`top` needs a terminal; `queue-worker stats --json` and `history` are for programs"));
    }
    let (database, store) = open_for_reading(settings).await?;
    let stop = shutdown_signal();
    let (seen, states) = watch::channel(TopState::default());
    let polling = tokio::spawn(poll_store(database.pool().clone(), store, seen));
    let terminal = ratatui::try_init().map_err(|error| {
        // A failed initialization may already have changed the terminal, so the terminal is restored.
        let _ = ratatui::try_restore();
        Problem::failed(format!("cannot draw on this terminal: {error}"))
    })?;
    // Dropping the guard restores the terminal. On a panic, ratatui's panic hook restores the terminal before the message is printed.
    let screen = TerminalGuard(terminal);
    hook_panics();
    let keys = KeyReader::start();
    let drawn = run_screen(screen, keys, states, stop).await;
    polling.abort();
    database.close().await;
    drawn.map(|()| ExitCode::SUCCESS).map_err(|error| Problem::failed(format!("cannot draw on this terminal: {error}")))
}

/// Whether a thread has panicked. The terminal then shows the panic message and must not be drawn on.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

fn hook_panics() {
    // The current hook is ratatui's. It restores the terminal and then calls the previous hook, which prints the message.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        HAS_PANICKED.store(true, Relaxed);
        before(info);
    }));
}

/// Guard that restores the terminal on drop.
struct TerminalGuard(DefaultTerminal);

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        // Restoring fails only if the terminal no longer exists.
        let _ = ratatui::try_restore();
    }
}

async fn run_screen(
    mut screen: TerminalGuard,
    mut keys: KeyReader,
    mut states: watch::Receiver<TopState>,
    stop: impl Future<Output = ()>,
) -> std::io::Result<()> {
    tokio::pin!(stop);
    let mut view = View::new(states.borrow_and_update().schema);
    loop {
        if HAS_PANICKED.load(Relaxed) {
            return Err(std::io::Error::other("a thread has panicked"));
        }
        let state = states.borrow_and_update().clone();
        screen.0.draw(|frame| draw::draw(frame, &mut view, &state))?;
        tokio::select! {
            () = &mut stop => return Ok(()),
            event = keys.next() => match event {
                Some(event) if !handle_event(&event, &mut view) => return Ok(()),
                Some(_) => {}
                // The keyboard thread is not running, because the terminal no longer exists or the thread could not be started.
                None => return Ok(()),
            },
            _ = states.changed() => {}
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// Handles a terminal event. Returns `false` if the user has pressed a key to quit.
fn handle_event(event: &Event, view: &mut View) -> bool {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press | KeyEventKind::Repeat, .. }) = event else { return true };
    match code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        // In raw mode, the terminal delivers these keys to the program instead of sending a signal or an end of file.
        KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Up | KeyCode::Char('k') => view.move_by(-1),
        KeyCode::Down | KeyCode::Char('j') => view.move_by(1),
        KeyCode::PageUp => view.move_by(-10),
        KeyCode::PageDown => view.move_by(10),
        KeyCode::Left | KeyCode::BackTab => view.turn(false),
        KeyCode::Right | KeyCode::Tab => view.turn(true),
        KeyCode::Char('s') => view.sort_by_next(),
        _ => {}
    }
    true
}

/// Receiver of the terminal events that a separate thread reads. The thread is necessary because reading blocks.
struct KeyReader {
    pressed: mpsc::UnboundedReceiver<Event>,
    ends: Arc<AtomicBool>,
}

impl KeyReader {
    fn start() -> Self {
        let (sender, pressed) = mpsc::unbounded_channel();
        let ends = Arc::new(AtomicBool::new(false));
        let is_ended = Arc::clone(&ends);
        let read = move || {
            while !is_ended.load(Relaxed) {
                let pressed = match event::poll(KEY_INTERVAL) {
                    Ok(false) => continue,
                    Ok(true) => event::read(),
                    Err(_) => return,
                };
                let Ok(pressed) = pressed else { return };
                if sender.send(pressed).is_err() {
                    return;
                }
            }
        };
        // If the thread cannot be started, the channel is closed and `top` quits.
        let _ = std::thread::Builder::new().name("queue keys".to_owned()).spawn(read);
        Self { pressed, ends }
    }

    async fn next(&mut self) -> Option<Event> {
        self.pressed.recv().await
    }
}

impl Drop for KeyReader {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
    }
}
