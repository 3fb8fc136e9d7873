//! Asynchronous UCI engines.
