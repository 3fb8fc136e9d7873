//! Sidecars that break in every way while a server is under load.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tonic::Code;

use super::sidecar::{Act, Sidecar};

/// Two sidecars; every half second one of them is killed, hangs, fails, lies, comes back or recovers.
pub(crate) struct Chaos {
    pub(crate) flag: String,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Chaos {
    pub(crate) fn start() -> Self {
        let sidecars = [Sidecar::start(Act::Score(vec![])), Sidecar::start(Act::Score(vec![]))];
        let flag = format!("--engines=http://{},http://{}", sidecars[0].address, sidecars[1].address);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || reign(sidecars, &stopped));
        Chaos { flag, stop, thread }
    }

    /// Ends it and gives the number of changes.
    pub(crate) fn stop(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

fn reign(sidecars: [Sidecar; 2], stop: &AtomicBool) -> usize {
    let addresses = sidecars.each_ref().map(|sidecar| sidecar.address);
    let mut sidecars = sidecars.map(Some);
    // Numerical Recipes' generator: the same on every run.
    let mut state = 2026_u32;
    let mut changes = 0;
    while !stop.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(500));
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = (state >> 24) as usize % 2;
        let act = match (state >> 16) % 8 {
            0 | 1 => None,
            2 => Some(Act::Hang),
            3 => Some(Act::Refuse(Code::Unavailable)),
            4 => Some(Act::WrongMove),
            5 => Some(Act::Half),
            _ => Some(Act::Score(vec![])),
        };
        match (sidecars[number].take(), act) {
            (Some(sidecar), None) => drop(sidecar.kill()),
            (Some(sidecar), Some(act)) => {
                sidecar.act(act);
                sidecars[number] = Some(sidecar);
            }
            (None, act) => sidecars[number] = act.map(|act| Sidecar::start_at(addresses[number], act)),
        }
        changes += 1;
    }
    changes
}
