//! The rules that say which failpoint does what, and the passes of each.
//!
//! Rules come from the environment variable `HEADGATE_FAILPOINTS` or from [`configure`]:
//! `NAME=ACTION[@FIRST][*TIMES][?CHANCE]`, separated by `;`, and `seed=NUMBER` for the chances.
//! `@3` acts from the third pass on, `*2` acts at most twice, `?0.1` acts with a chance of one in
//! ten. Actions are `error`, `panic`, `kill` (of this process) and `sleep(MILLISECONDS)`. Equal
//! seeds give equal chances.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

/// Environment variable with the rules, unless [`configure`] sets them.
pub const VARIABLE: &str = "HEADGATE_FAILPOINTS";

#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    Error,
    Panic,
    Kill,
    Sleep(Duration),
}

#[derive(Debug, Clone)]
struct Rule {
    name: String,
    action: Action,
    first: u64,
    times: u64,
    chance: f64,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    seed: u64,
    hits: BTreeMap<&'static str, u64>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    let text = std::env::var(VARIABLE).unwrap_or_default();
    let (rules, seed) = parse(&text).unwrap_or_else(|error| panic!("{VARIABLE}: {error}"));
    Mutex::new(State { rules, seed, ..State::default() })
});

/// Takes the lock, also after a panic of its holder: nothing panics between two changes.
fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces all rules and clears all hits. An empty text removes all rules.
///
/// # Errors
/// The part of the text that cannot be parsed.
pub fn configure(text: &str) -> Result<(), String> {
    let (rules, seed) = parse(text)?;
    *lock() = State { rules, seed, ..State::default() };
    Ok(())
}

/// Returns the points that were passed since the last [`configure`], with their numbers of passes.
pub fn hits() -> Vec<(&'static str, u64)> {
    lock().hits.iter().map(|(name, count)| (*name, *count)).collect()
}

fn parse(text: &str) -> Result<(Vec<Rule>, u64), String> {
    let (mut rules, mut seed) = (Vec::new(), 0);
    for part in text.split(';').filter(|part| !part.trim().is_empty()) {
        let (name, rest) =
            part.trim().split_once('=').ok_or_else(|| format!("no `=` in {part:?}"))?;
        let number = |text: &str| text.parse().map_err(|_| format!("no number in {part:?}"));
        if name == "seed" {
            seed = number(rest)?;
            continue;
        }
        let end = rest.find(['@', '*', '?']).unwrap_or(rest.len());
        let (action, mut limits) = rest.split_at(end);
        let action = match action {
            "error" => Action::Error,
            "panic" => Action::Panic,
            "kill" => Action::Kill,
            _ => {
                let ms = action.strip_prefix("sleep(").and_then(|rest| rest.strip_suffix(')'));
                let ms = ms.ok_or_else(|| format!("unknown action in {part:?}"))?;
                Action::Sleep(Duration::from_millis(number(ms)?))
            }
        };
        let mut rule =
            Rule { name: name.to_owned(), action, first: 1, times: u64::MAX, chance: 1.0 };
        while let Some(kind) = limits.chars().next() {
            let rest = &limits[1..];
            let (value, next) = rest.split_at(rest.find(['@', '*', '?']).unwrap_or(rest.len()));
            match kind {
                '@' => rule.first = number(value)?,
                '*' => rule.times = number(value)?,
                _ => rule.chance = value.parse().map_err(|_| format!("no chance in {part:?}"))?,
            }
            limits = next;
        }
        rules.push(rule);
    }
    Ok((rules, seed))
}

/// Counts a pass. Returns the action to take, if a rule asks for one.
fn due(name: &'static str) -> Option<Action> {
    let mut state = lock();
    let count = state.hits.entry(name).or_default();
    *count += 1;
    let count = *count;
    let seed = state.seed;
    let rule = state.rules.iter().find(|rule| rule.name == name)?;
    let mut hasher = DefaultHasher::new();
    (seed, name, count).hash(&mut hasher);
    let draw = hasher.finish() as f64 / u64::MAX as f64;
    let is_due = count >= rule.first && count - rule.first < rule.times;
    (is_due && draw < rule.chance).then_some(rule.action)
}

/// Passes a point. Returns the text of the error to fail with, if a rule asks for one.
pub fn hit(name: &'static str) -> Option<String> {
    // `due` has released the lock: other threads pass while this one sleeps.
    match due(name)? {
        Action::Error => Some(format!("failpoint {name}")),
        Action::Panic => panic!("failpoint {name}"),
        Action::Kill => {
            let _ = kill_process(getpid(), Signal::KILL);
            // If the signal is not delivered at once, this thread must still not continue.
            std::process::abort()
        }
        Action::Sleep(time) => {
            std::thread::sleep(time);
            None
        }
    }
}

/// Passes a point that cannot fail. Ignores an error.
pub fn pass(name: &'static str) {
    let _ = hit(name);
}
