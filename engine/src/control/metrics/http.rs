//! The part of HTTP/1 (RFC 9112) that serving one page needs: the head of a `GET`, and an answer after which the connection ends.
//! Headers and bodies of requests are ignored.

/// Maximum length of a request's head, in bytes.
pub const MAX_REQUEST: usize = 8 << 10;
/// Path of the only page.
const PAGE: &str = "/metrics";

/// A request, as far as it has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The rest of the head has not arrived.
    Partial,
    /// Request for metrics.
    Metrics,
    /// Refused request.
    Refused(Status),
}

/// The status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success: the page follows.
    Ok,
    /// Not HTTP/1.
    Bad,
    /// Path other than `PAGE`.
    NotFound,
    /// Method other than `GET`.
    Method,
    /// A head longer than [`MAX_REQUEST`].
    TooLarge,
    /// spind is stopping.
    Unavailable,
}

impl Status {
    const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::Bad => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::Method => "405 Method Not Allowed\r\nAllow: GET",
            Self::TooLarge => "431 Request Header Fields Too Large",
            Self::Unavailable => "503 Service Unavailable",
        }
    }

    /// Body of the answer, for browsers.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Ok => "",
            Self::Bad => "not an HTTP/1 request\n",
            Self::NotFound => "there is only /metrics\n",
            Self::Method => "only GET\n",
            Self::TooLarge => "request too long\n",
            Self::Unavailable => "spind is stopping\n",
        }
    }
}

/// Parses the received part of a request. Its first `seen` bytes are known not to be the whole head.
pub fn request(bytes: &[u8], seen: usize) -> Request {
    // The end of the head may begin among the seen bytes. Scanning all bytes each time would be quadratic for a client that sends byte by
    // byte.
    if !ends(&bytes[seen.saturating_sub(END.len() - 1)..]) {
        return if bytes.len() < MAX_REQUEST { Request::Partial } else { Request::Refused(Status::TooLarge) };
    }
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).unwrap_or_default();
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some("HTTP/1.0" | "HTTP/1.1"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Request::Refused(Status::Bad);
    };
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    match (method, path) {
        ("GET", PAGE) => Request::Metrics,
        ("GET", _) => Request::Refused(Status::NotFound),
        _ => Request::Refused(Status::Method),
    }
}

const END: &[u8] = b"\r\n\r\n";

/// Whether the empty line behind the headers is there.
fn ends(bytes: &[u8]) -> bool {
    let has = |end: &[u8]| bytes.windows(end.len()).any(|window| window == end);
    has(END) || has(b"\n\n")
}

/// An answer, after which the connection ends.
pub fn response(status: Status, body: &str) -> Vec<u8> {
    let (line, len) = (status.line(), body.len());
    // The type of Prometheus' text format, which is plain text to other clients.
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let head = format!("HTTP/1.1 {line}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::{MAX_REQUEST, Request, Status, request, response};
    use proptest::prelude::*;

    #[test]
    fn requests() {
        let refused = Request::Refused;
        let cases: [(&[u8], Request); 16] = [
            (b"", Request::Partial),
            (b"GET /metrics HTTP/1.1\r\n", Request::Partial),
            (b"GET /metrics HTTP/1.1\r\n\r\n", Request::Metrics),
            (b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\nmore", Request::Metrics),
            (b"GET /metrics HTTP/1.0\n\n", Request::Metrics),
            (b"GET /metrics?a=b HTTP/1.1\r\n\r\n", Request::Metrics),
            (b"GET / HTTP/1.1\r\n\r\n", refused(Status::NotFound)),
            (b"GET /metrics/ HTTP/1.1\r\n\r\n", refused(Status::NotFound)),
            (b"GET http://a/metrics HTTP/1.1\r\n\r\n", refused(Status::NotFound)),
            (b"POST /metrics HTTP/1.1\r\n\r\n", refused(Status::Method)),
            (b"get /metrics HTTP/1.1\r\n\r\n", refused(Status::Method)),
            (b"GET /metrics\r\n\r\n", refused(Status::Bad)),
            (b"GET /metrics HTTP/2\r\n\r\n", refused(Status::Bad)),
            (b"GET  /metrics HTTP/1.1\r\n\r\n", refused(Status::Bad)),
            (b"GET /metrics HTTP/1.1 \r\n\r\n", refused(Status::Bad)),
            (b"\xff\xfe\x00 \r\n\r\n", refused(Status::Bad)),
        ];
        for (bytes, expected) in cases {
            assert_eq!(request(bytes, 0), expected, "{}", bytes.escape_ascii());
        }
        assert_eq!(request(&[b'A'; MAX_REQUEST - 1], 0), Request::Partial);
        assert_eq!(request(&[b'A'; MAX_REQUEST], 0), refused(Status::TooLarge));
    }

    #[test]
    fn responses_say_how_long_they_are() {
        let text = String::from_utf8(response(Status::Method, "no\n")).unwrap();
        assert!(text.starts_with("HTTP/1.1 405 Method Not Allowed\r\nAllow: GET\r\n"), "{text}");
        assert!(text.ends_with("\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n"), "{text}");
    }

    proptest! {
        #[test]
        fn only_one_request_gets_metrics(mut bytes in prop::collection::vec(any::<u8>(), 0..200), end in any::<bool>()) {
            if end {
                bytes.extend_from_slice(b"\r\n\r\n");
            }
            let got = request(&bytes, 0);
            prop_assert!(got != Request::Metrics || bytes.starts_with(b"GET /metrics"));
            prop_assert!(got != Request::Partial || !end);
        }

        #[test]
        fn however_it_is_cut_it_is_the_same_request(headers in "([A-Za-z-]{1,12}: [ -~]{0,40}\r\n){0,8}", cut in 0..400_usize) {
            let whole = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n");
            let cut = cut.min(whole.len() - 1);
            prop_assert_eq!(request(&whole.as_bytes()[..cut], 0), Request::Partial);
            prop_assert_eq!(request(whole.as_bytes(), cut), Request::Metrics);
        }
    }
}
