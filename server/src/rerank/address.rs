//! How an operator says where sidecars are.

use std::str::FromStr;

use thiserror::Error;
use tonic::codegen::http::Uri;

/// Where one sidecar is, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// One, by its URI.
    One(String),
    /// All addresses of a name.
    Dns {
        /// The name.
        host: String,
        /// Their port.
        port: u16,
    },
}

/// What is wrong with an address.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("is not like http://localhost:50052, https://engine:50052 or dns:engines:50052")]
pub struct AddressError;

impl Address {
    /// Whether it can only be reached by TLS.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Address::One(uri) if uri.starts_with("https:"))
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(name) = text.strip_prefix("dns:") {
            let (host, port) = name.rsplit_once(':').ok_or(AddressError)?;
            let port = port.parse::<u16>().ok().filter(|port| *port > 0).ok_or(AddressError)?;
            let plain =
                !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
            return if plain { Ok(Address::Dns { host: host.to_owned(), port }) } else { Err(AddressError) };
        }
        let uri = text.parse::<Uri>().map_err(|_| AddressError)?;
        let scheme = uri.scheme_str().is_some_and(|scheme| ["http", "https"].contains(&scheme));
        let bare = ["", "/"].contains(&uri.path()) && uri.query().is_none();
        if scheme && bare && uri.port_u16().is_some() && uri.host().is_some_and(|host| !host.is_empty()) {
            Ok(Address::One(text.trim_end_matches('/').to_owned()))
        } else {
            Err(AddressError)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_uris_or_names() {
        assert_eq!("http://10.0.0.1:50052/".parse(), Ok(Address::One("http://10.0.0.1:50052".to_owned())));
        assert_eq!("http://[::1]:50052".parse(), Ok(Address::One("http://[::1]:50052".to_owned())));
        assert_eq!("dns:engines.ns:9".parse(), Ok(Address::Dns { host: "engines.ns".to_owned(), port: 9 }));
        assert!("https://engine:1".parse::<Address>().unwrap().is_encrypted());
        for text in
            ["", "engine:50052", "http://engine", "ftp://engine:1", "dns:engine", "dns::1", "dns:a:0", "http://a:1/x"]
        {
            assert_eq!(text.parse::<Address>(), Err(AddressError), "{text}");
        }
    }
}
