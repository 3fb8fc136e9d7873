//! The clock in a PGN comment: `[%clk 1:02:03]`.

/// The first clock in a comment, in seconds. Understands `h:m:s`, `m:s` and `s`, each with a fraction of a second.
pub fn find(comment: &[u8]) -> Option<f32> {
    const TAG: &[u8] = b"[%clk";
    let start = comment.windows(TAG.len()).position(|window| window == TAG)?;
    let rest = comment.get(start + TAG.len()..)?;
    let end = rest.iter().position(|&byte| byte == b']')?;
    let text = std::str::from_utf8(rest.get(..end)?).ok()?.trim();
    let mut seconds = 0.0;
    let mut parts = 0;
    for part in text.split(':') {
        parts += 1;
        let digits = part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        seconds = seconds * 60.0 + part.parse::<f32>().ok().filter(|_| digits)?;
    }
    (parts <= 3 && seconds < 1e6).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn clocks_are_read_in_every_form() {
        assert_eq!(find(b" [%eval 0.2] [%clk 0:05:00] "), Some(300.0));
        assert_eq!(find(b"[%clk 1:00:01.5]"), Some(3601.5));
        assert_eq!(find(b"[%clk 2:03]"), Some(123.0));
    }

    #[test]
    fn anything_else_is_no_clock() {
        for text in [
            "",
            "[%clk]",
            "[%clk 0:05:00",
            "[%clk a:b:c]",
            "[%clk -0:01]",
            "[%clk 1:2:3:4]",
            "[%emt 0:01]",
            "[%clk 1e9]",
        ] {
            assert_eq!(find(text.as_bytes()), None, "{text}");
        }
    }
}
