//! The engine sidecar.
