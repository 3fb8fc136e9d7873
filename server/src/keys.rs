//! API keys: who may call, how often, and how much at once.
//!
//! The file holds the keys' fingerprints alone, so that whoever reads it can call nothing:
//!
//! ```toml
//! [[key]]
//! name = "coaching-app"
//! sha256 = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"
//! expires = 2027-12-31T23:59:59Z     # optional, as all below
//! admin = false                      # may reload the models
//! requests_per_second = 50
//! burst = 100                        # as requests_per_second when not given
//! concurrent = 32
//! ```

use std::{fmt, fs, num::NonZeroU32, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter, clock::Clock};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ServiceError;

/// The keys of a file.
pub struct Keys {
    clients: Vec<Arc<Client>>,
}

/// Whose key it is, and what it may do. Its `Debug` shows the name alone.
pub struct Client {
    /// Name in logs.
    pub name: String,
    /// Whether it may reload the models.
    pub admin: bool,
    fingerprint: [u8; 32],
    expires: Option<OffsetDateTime>,
    rate: Option<DefaultDirectRateLimiter>,
    concurrent: Option<Arc<Semaphore>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Client({})", self.name)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    key: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    sha256: String,
    expires: Option<toml::value::Datetime>,
    #[serde(default)]
    admin: bool,
    requests_per_second: Option<NonZeroU32>,
    burst: Option<NonZeroU32>,
    concurrent: Option<u32>,
}

impl Keys {
    /// Reads a file of keys.
    ///
    /// # Errors
    ///
    /// Names the file, and the line or the key: no key at all, an empty or repeated one, a bad fingerprint or time.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = || format!("--api-keys: {}", path.display());
        let text = fs::read_to_string(path).with_context(shown)?;
        Self::parse(&text).with_context(shown)
    }

    fn parse(text: &str) -> Result<Self> {
        let file = toml::from_str::<File>(text)?;
        if file.key.is_empty() {
            bail!("holds no [[key]]");
        }
        let mut clients = Vec::<Arc<Client>>::new();
        for entry in file.key {
            let name = entry.name.clone();
            let client = Client::new(entry).with_context(|| format!("key `{name}`"))?;
            if clients.iter().any(|other| other.name == client.name || other.fingerprint == client.fingerprint) {
                bail!("key `{name}`: another key has its name or its fingerprint");
            }
            clients.push(Arc::new(client));
        }
        Ok(Keys { clients })
    }

    /// The client whose key this is. Every fingerprint is compared, each in constant time.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Unauthenticated`] for a missing, unknown or expired key.
    pub fn client(&self, key: Option<&str>) -> Result<&Arc<Client>, ServiceError> {
        let key = key.ok_or(ServiceError::Unauthenticated("no `authorization: Bearer KEY`"))?;
        let fingerprint = Sha256::digest(key);
        let mut found = None;
        for client in &self.clients {
            if bool::from(client.fingerprint.ct_eq(&fingerprint)) {
                found = Some(client);
            }
        }
        let client = found.ok_or(ServiceError::Unauthenticated("the key is not known"))?;
        match client.expires {
            Some(end) if end <= OffsetDateTime::now_utc() => Err(ServiceError::Unauthenticated("the key has expired")),
            _ => Ok(client),
        }
    }
}

impl Client {
    fn new(entry: Entry) -> Result<Self> {
        let fingerprint = parse_fingerprint(&entry.sha256).context("sha256 must be 64 hexadecimal digits")?;
        if fingerprint[..] == Sha256::digest("")[..] {
            bail!("sha256 is that of the empty key");
        }
        if entry.name.is_empty() {
            bail!("the name is empty");
        }
        let expires = entry.expires.map(|time| {
            let text = time.to_string();
            OffsetDateTime::parse(&text, &Rfc3339)
                .with_context(|| format!("expires: `{text}` is not a time with a zone"))
        });
        if entry.burst.is_some() && entry.requests_per_second.is_none() {
            bail!("burst needs requests_per_second");
        }
        let quota = |rate| Quota::per_second(rate).allow_burst(entry.burst.unwrap_or(rate));
        Ok(Client {
            name: entry.name,
            admin: entry.admin,
            fingerprint,
            expires: expires.transpose()?,
            rate: entry.requests_per_second.map(|rate| RateLimiter::direct(quota(rate))),
            concurrent: entry.concurrent.map(|most| Arc::new(Semaphore::new(most as usize))),
        })
    }

    /// Counts a request against the client's limits; the permit, if any, is held until its answer has ended.
    ///
    /// # Errors
    ///
    /// [`ServiceError::ClientLimit`].
    pub fn enter(&self) -> Result<Option<OwnedSemaphorePermit>, ServiceError> {
        let limit = |what, retry_after| ServiceError::ClientLimit { what, retry_after };
        // Concurrency first: what is refused for it must not use up the rate.
        let permit = match &self.concurrent {
            Some(places) => Some(
                Arc::clone(places)
                    .try_acquire_owned()
                    .map_err(|_| limit("requests at the same time", Duration::from_millis(50)))?,
            ),
            None => None,
        };
        if let Some(rate) = &self.rate {
            rate.check().map_err(|until| limit("requests per second", until.wait_time_from(rate.clock().now())))?;
        }
        Ok(permit)
    }
}

fn parse_fingerprint(text: &str) -> Option<[u8; 32]> {
    let mut fingerprint = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in fingerprint.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWORD: &str = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";

    fn key(more: &str) -> Result<Keys> {
        Keys::parse(&format!("[[key]]\nname = \"app\"\nsha256 = \"{PASSWORD}\"\n{more}"))
    }

    #[test]
    fn a_key_is_known_by_its_fingerprint_until_it_expires() {
        let keys = key("expires = 2999-01-01T00:00:00Z").unwrap();
        assert_eq!(keys.client(Some("password")).unwrap().name, "app");
        let problem = |keys: &Keys, key| match keys.client(key) {
            Err(ServiceError::Unauthenticated(problem)) => problem,
            other => panic!("{other:?}"),
        };
        assert_eq!(problem(&keys, Some("Password")), "the key is not known");
        assert_eq!(problem(&keys, Some("")), "the key is not known");
        assert_eq!(problem(&keys, None), "no `authorization: Bearer KEY`");
        assert_eq!(problem(&key("expires = 2020-01-01T00:00:00Z").unwrap(), Some("password")), "the key has expired");
        assert!(!format!("{:?}", keys.clients).contains("5e88"));
    }

    #[test]
    fn rates_and_concurrency_are_limited() {
        let keys = key("requests_per_second = 1\nburst = 3\nconcurrent = 2").unwrap();
        let client = keys.client(Some("password")).unwrap();
        let held = [client.enter().unwrap(), client.enter().unwrap()];
        let limited = |result: Result<_, _>| match result {
            Err(ServiceError::ClientLimit { what, retry_after }) => (what, retry_after),
            other => panic!("{other:?}"),
        };
        assert_eq!(limited(client.enter()).0, "requests at the same time");
        drop(held);
        assert!(client.enter().is_ok(), "what was refused for concurrency used up no rate");
        let (what, retry_after) = limited(client.enter());
        assert_eq!(what, "requests per second");
        assert!(retry_after > Duration::ZERO && retry_after <= Duration::from_secs(1), "{retry_after:?}");
    }

    #[test]
    fn bad_files_are_refused_by_what_is_wrong() {
        let problem = |text: &str| format!("{:#}", Keys::parse(text).err().unwrap());
        let empty = Sha256::digest("").iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let entry = |name: &str, sha256: &str| format!("[[key]]\nname = \"{name}\"\nsha256 = \"{sha256}\"\n");
        assert!(problem("").contains("no [[key]]"));
        assert!(problem(&entry("a", &empty)).contains("key `a`: sha256 is that of the empty key"));
        assert!(problem(&entry("a", "12")).contains("64 hexadecimal digits"));
        assert!(problem(&entry("", PASSWORD)).contains("the name is empty"));
        assert!(problem(&(entry("a", PASSWORD) + &entry("b", PASSWORD))).contains("another key has"));
        assert!(problem("[[key]]\nname = \"a\"\nkey = \"secret\"").contains("line 3"));
        let more = |more: &str| format!("{:#}", key(more).err().unwrap());
        assert!(more("expires = 2027-01-01").contains("not a time with a zone"));
        assert!(more("burst = 3").contains("burst needs requests_per_second"));
        assert!(more("requests_per_second = 0").contains("requests_per_second"));
    }
}
