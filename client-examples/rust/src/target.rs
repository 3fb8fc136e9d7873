//! What is called.

use std::future::Future;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With an answer.
    Answered,
    /// The server refused it, being busy.
    Refused,
    /// The deadline passed.
    Late,
    /// In another way, told in words.
    Failed(String),
}

/// Something that takes calls, many at the same time.
pub trait Target: Send + Sync + 'static {
    /// Makes the call with this number; the number chooses what to ask.
    fn call(&self, number: usize) -> impl Future<Output = Outcome> + Send;
}
