//! The wire contract of Zeitnot: messages, clients, servers and the descriptor set.

/// Package `zeitnot.v1`.
#[allow(missing_docs, unreachable_pub, clippy::doc_markdown, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("zeitnot.v1");
}

/// Packages `zeitnot.engine`.
pub mod engine {
    /// Package `zeitnot.engine.v1`.
    #[allow(missing_docs, unreachable_pub, clippy::doc_markdown, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("zeitnot.engine.v1");
    }
}

/// The encoded `FileDescriptorSet` of all files, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
