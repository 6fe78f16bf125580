//! `top`: queues, workers and running jobs on a terminal, anew each second, until `q` or a signal. It only reads.
//!
//! Three parts: `ask` asks the database, on a connection and in a task of its own, so that keys answer while it is away; `draw` makes a picture of
//! what was seen (`look`), and knows neither; here keys, signals and time come together.

mod ask;
mod draw;
mod look;
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

use self::{ask::follow, look::Look, view::View};
use super::{open::open_to_look, problem::Problem, settings::Settings};
use crate::live::shutdown_signal;

/// What was pressed is heard within this time, and what is shown grows older in steps of it.
const STEP: Duration = Duration::from_millis(100);

pub(super) async fn top(settings: &Settings) -> Result<ExitCode, Problem> {
    if !(stdin().is_terminal() && stdout().is_terminal()) {
        return Err(Problem::usage(
            "`top` draws on a terminal, and this is none; `queue-worker stats --json` and `history` are for programs",
        ));
    }
    let (database, store) = open_to_look(settings).await?;
    let stop = shutdown_signal();
    let (seen, looks) = watch::channel(Look::default());
    let asking = tokio::spawn(follow(database.pool().clone(), store, seen));
    let terminal = ratatui::try_init().map_err(|error| {
        // It may have gone half of the way.
        let _ = ratatui::try_restore();
        Problem::failed(format!("cannot draw on this terminal: {error}"))
    })?;
    // Given back however this ends; at a panic by the library's hook, before the message.
    let screen = Screen(terminal);
    tell_of_panics();
    let keys = PressedKeys::listen();
    let drawn = show(screen, keys, looks, stop).await;
    asking.abort();
    database.close().await;
    drawn.map(|()| ExitCode::SUCCESS).map_err(|error| Problem::failed(format!("cannot draw on this terminal: {error}")))
}

/// Some thread has panicked, and the terminal is not ours to draw on any more: the message stands there.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

fn tell_of_panics() {
    // The library's: it gives the terminal back, and goes on to the one before, which tells.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        HAS_PANICKED.store(true, Relaxed);
        before(info);
    }));
}

/// The terminal, which is given back as it was.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        // With the terminal gone there is nothing to give back.
        let _ = ratatui::try_restore();
    }
}

async fn show(
    mut screen: Screen,
    mut keys: PressedKeys,
    mut looks: watch::Receiver<Look>,
    stop: impl Future<Output = ()>,
) -> std::io::Result<()> {
    tokio::pin!(stop);
    let mut view = View::new(looks.borrow_and_update().schema);
    loop {
        if HAS_PANICKED.load(Relaxed) {
            return Err(std::io::Error::other("a thread has panicked"));
        }
        let look = looks.borrow_and_update().clone();
        screen.0.draw(|frame| draw::draw(frame, &mut view, &look))?;
        tokio::select! {
            () = &mut stop => return Ok(()),
            event = keys.next() => match event {
                Some(event) if !obey(&event, &mut view) => return Ok(()),
                Some(_) => {}
                // The terminal is gone.
                None => return Ok(()),
            },
            _ = looks.changed() => {}
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// Does what a key says; false if that is to end.
fn obey(event: &Event, view: &mut View) -> bool {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press | KeyEventKind::Repeat, .. }) = event else { return true };
    match code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        // The terminal sends no signal while keys are read one by one.
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

/// What is pressed, read on a thread of its own: reading waits.
struct PressedKeys {
    pressed: mpsc::UnboundedReceiver<Event>,
    ends: Arc<AtomicBool>,
}

impl PressedKeys {
    fn listen() -> Self {
        let (tell, pressed) = mpsc::unbounded_channel();
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let read = move || {
            while !is_over.load(Relaxed) {
                let pressed = match event::poll(STEP) {
                    Ok(false) => continue,
                    Ok(true) => event::read(),
                    Err(_) => return,
                };
                let Ok(pressed) = pressed else { return };
                if tell.send(pressed).is_err() {
                    return;
                }
            }
        };
        // Without the thread the channel is closed, which ends all.
        let _ = std::thread::Builder::new().name("queue keys".to_owned()).spawn(read);
        Self { pressed, ends }
    }

    async fn next(&mut self) -> Option<Event> {
        self.pressed.recv().await
    }
}

impl Drop for PressedKeys {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
    }
}
