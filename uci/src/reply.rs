//! Whom a search is for, and until when.

use tokio::{sync::oneshot, time::Instant};

use crate::{Evaluation, UciError};

/// When a search is stopped.
pub(crate) struct Stop<'a> {
    pub(crate) deadline: Option<Instant>,
    /// Closed when the caller has gone.
    pub(crate) reply: &'a mut Reply,
}

/// The caller, until it is answered.
#[derive(Debug)]
pub(crate) struct Reply(Option<oneshot::Sender<Result<Evaluation, UciError>>>);

impl Reply {
    pub(crate) fn new(sender: oneshot::Sender<Result<Evaluation, UciError>>) -> Self {
        Reply(Some(sender))
    }

    /// Answers, unless that was done before.
    pub(crate) fn send(&mut self, answer: Result<Evaluation, UciError>) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(answer); // The caller may have gone.
        }
    }

    /// True when nobody waits for an answer any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Ends when the caller goes; never once it is answered.
    pub(crate) async fn closed(&mut self) {
        match &mut self.0 {
            Some(sender) => sender.closed().await,
            None => std::future::pending().await,
        }
    }
}
