//! What a model file says of itself.

use zeitnot_encoding::{Encoding, encodings, vocabulary};

/// The `zeitnot.*` entries of a model's `metadata_props`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Name of the encoding, such as `otter/1`.
    pub encoding: String,
    /// Fingerprint of the move vocabulary.
    pub vocabulary: String,
    /// Name of the model.
    pub name: String,
    /// Version of the model.
    pub version: String,
    /// What it was trained on.
    pub trained_on: String,
    /// The evaluation, as JSON; empty when there is none.
    pub metrics: String,
    /// Licence of the weights.
    pub license: String,
    /// Name of the published file that it was imported from; empty for a model of our own.
    pub source: String,
    /// Fingerprint of that file, in hexadecimal.
    pub source_sha256: String,
}

impl Metadata {
    /// For a model of an encoding.
    pub fn new(encoding: &dyn Encoding, name: &str, version: &str, trained_on: &str, license: &str) -> Self {
        Metadata {
            encoding: encoding.name().to_owned(),
            vocabulary: vocabulary::FINGERPRINT.to_owned(),
            name: name.to_owned(),
            version: version.to_owned(),
            trained_on: trained_on.to_owned(),
            license: license.to_owned(),
            ..Metadata::default()
        }
    }

    /// As entries of an ONNX file.
    pub fn entries(&self) -> Vec<(String, String)> {
        [
            ("encoding", &self.encoding),
            ("vocabulary", &self.vocabulary),
            ("name", &self.name),
            ("version", &self.version),
            ("trained_on", &self.trained_on),
            ("metrics", &self.metrics),
            ("license", &self.license),
            ("source", &self.source),
            ("source_sha256", &self.source_sha256),
        ]
        .map(|(key, value)| (format!("zeitnot.{key}"), value.clone()))
        .to_vec()
    }

    /// From the entries of an ONNX file.
    pub(crate) fn read(entry: impl Fn(&str) -> Option<String>) -> Self {
        let value = |key: &str| entry(&format!("zeitnot.{key}")).unwrap_or_default();
        Metadata {
            encoding: value("encoding"),
            vocabulary: value("vocabulary"),
            name: value("name"),
            version: value("version"),
            trained_on: value("trained_on"),
            metrics: value("metrics"),
            license: value("license"),
            source: value("source"),
            source_sha256: value("source_sha256"),
        }
    }

    /// What keeps this build from serving such a model.
    pub(crate) fn problem(&self) -> Option<String> {
        if encodings::find(&self.encoding).is_none() {
            let known = encodings::ALL.map(|encoding| encoding.name()).join(", ");
            return Some(format!("zeitnot.encoding is `{}`, this build knows {known}", self.encoding));
        }
        if self.vocabulary != vocabulary::FINGERPRINT {
            return Some(format!("zeitnot.vocabulary is `{}`, expected {}", self.vocabulary, vocabulary::FINGERPRINT));
        }
        self.name.is_empty().then(|| "zeitnot.name is missing".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use zeitnot_encoding::Otter;

    use super::*;

    #[test]
    fn entries_are_read_back() {
        let metadata = Metadata {
            metrics: "{}".into(),
            source: "a.pt".into(),
            source_sha256: "ab".into(),
            ..Metadata::new(&Otter, "a", "1", "games", "GPL-3.0-or-later")
        };
        let entries = metadata.entries();
        let read = Metadata::read(|key| entries.iter().find(|entry| entry.0 == key).map(|entry| entry.1.clone()));
        assert_eq!(read, metadata);
        assert_eq!(read.problem(), None);
    }

    #[test]
    fn another_encoding_or_vocabulary_is_refused_by_name() {
        let good = Metadata::new(&Otter, "a", "1", "", "");
        let problem = |metadata: Metadata| metadata.problem().unwrap();
        assert!(
            problem(Metadata { encoding: "otter/2".into(), ..good.clone() }).contains("zeitnot.encoding is `otter/2`")
        );
        assert!(problem(Metadata { vocabulary: "0".into(), ..good.clone() }).contains("zeitnot.vocabulary is `0`"));
        assert!(problem(Metadata { name: String::new(), ..good }).contains("zeitnot.name"));
    }
}
