//! Deadlines of requests.
//!
//! tonic answers an elapsed `grpc-timeout` with CANCELLED, so the server keeps the deadline itself, a little earlier.

use std::time::{Duration, Instant};

use tonic::codegen::http::HeaderMap;

/// Share of a client's time kept for the way back, so that the answer arrives before the client, or tonic, gives up.
const WAY_BACK: f64 = 0.1;
/// Most time kept for the way back.
const MOST_WAY_BACK: Duration = Duration::from_millis(25);

/// When a request must be answered; an extension of every request.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(pub Instant);

/// The moment by which a request must be answered: the client's `grpc-timeout` or the server's limit, whichever is
/// earlier. Counts from now, which should be when the headers arrive.
pub fn of(headers: &HeaderMap, limit: Duration) -> Instant {
    let client = headers.get("grpc-timeout").and_then(|value| value.to_str().ok()).and_then(parse);
    let allowed = match client {
        Some(timeout) => timeout.saturating_sub(timeout.mul_f64(WAY_BACK).min(MOST_WAY_BACK)).min(limit),
        None => limit,
    };
    Instant::now() + allowed
}

/// Reads `grpc-timeout`: up to eight digits and a unit of H, M, S, m, u or n.
pub fn parse(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let digits = text.get(..text.len() - unit.len_utf8())?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value = digits.parse::<u64>().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(value * 3600)),
        'M' => Some(Duration::from_secs(value * 60)),
        'S' => Some(Duration::from_secs(value)),
        'm' => Some(Duration::from_millis(value)),
        'u' => Some(Duration::from_micros(value)),
        'n' => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_in_every_unit() {
        assert_eq!(parse("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(parse("3M"), Some(Duration::from_secs(180)));
        assert_eq!(parse("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse("7u"), Some(Duration::from_micros(7)));
        assert_eq!(parse("0n"), Some(Duration::ZERO));
    }

    #[test]
    fn anything_else_is_no_timeout() {
        for text in ["", "m", "-1m", "1", "1x", "123456789S", "1.5S", "1 S", "١m"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_earlier_of_client_and_server_counts() {
        let mut metadata = HeaderMap::new();
        let limit = Duration::from_secs(10);
        let left = |metadata: &HeaderMap| of(metadata, limit).duration_since(Instant::now());
        assert!(left(&metadata) > Duration::from_secs(9));
        metadata.insert("grpc-timeout", "1S".parse().unwrap());
        assert!(left(&metadata) <= Duration::from_millis(975));
        metadata.insert("grpc-timeout", "1H".parse().unwrap());
        assert!(left(&metadata) <= limit);
        metadata.insert("grpc-timeout", "0n".parse().unwrap());
        assert_eq!(left(&metadata), Duration::ZERO);
    }
}
