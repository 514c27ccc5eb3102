//! The trials: who, what, and the line that does it.
//!
//! A line runs in a folder of its own, with these variables: `PROXY` and `LOCKED` (the proxies, the latter with the user
//! `ann` and the password `secret`), `WWW` (the folder that nginx serves), `CA` (what signed its certificate), `HTTP`,
//! `HTTPS`, `WS`, `SSH` (ports), `KEY` and `HOSTS` (for ssh), `CLOSED` (a port where nobody listens), and `STAND`.

/// One trial.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// Whose program it is.
    pub client: &'static str,
    /// What is tried.
    pub what: &'static str,
    /// The programs that it needs; with `python:` in front, a module of Python.
    pub needs: &'static [&'static str],
    /// The line.
    pub line: &'static str,
}

const CURL: &[&str] = &["curl", "nginx"];
const GIT: &[&str] = &["git", "nginx"];
const SSH: &[&str] = &["ssh", "sshd", "nc"];
const WEBSOCKETS: &[&str] = &["python3", "python:websockets.asyncio.client"];
const CHROMIUM: &[&str] = &["chromium", "nginx"];

/// Every trial, in the order of the table.
pub const TRIALS: &[Trial] = &[
    Trial {
        client: "curl",
        what: "HTTP/1.1 by URL, 20 MB",
        needs: CURL,
        line: "curl -fsS --proxy http://$PROXY -o got http://localhost:$HTTP/big && cmp got $WWW/big",
    },
    Trial {
        client: "curl",
        what: "HTTP/1.1 over CONNECT and TLS, 20 MB",
        needs: CURL,
        line: "curl -fsS --http1.1 --proxy http://$PROXY --cacert $CA -o got https://localhost:$HTTPS/big && cmp got $WWW/big",
    },
    Trial {
        client: "curl",
        what: "HTTP/2 over CONNECT and TLS, 20 MB",
        needs: CURL,
        line: "curl -fsS --http2 --proxy http://$PROXY --cacert $CA -w '%{http_version}' -o got https://localhost:$HTTPS/big \
               | grep -x 2 && cmp got $WWW/big",
    },
    Trial {
        client: "curl",
        what: "HTTP/2 over SOCKS5, 20 MB",
        needs: CURL,
        line: "curl -fsS --http2 --proxy socks5h://$PROXY --cacert $CA -w '%{http_version}' -o got \
               https://localhost:$HTTPS/big | grep -x 2 && cmp got $WWW/big",
    },
    Trial {
        client: "curl",
        what: "upload of 20 MB, Expect: 100-continue",
        needs: CURL,
        line: "curl -fsS --proxy http://$PROXY -H 'Expect: 100-continue' -v -T $WWW/big http://localhost:$HTTP/upload/expect \
               2>log && grep -q '< HTTP/1.1 100' log && cmp $WWW/upload/expect $WWW/big",
    },
    Trial {
        client: "curl",
        what: "upload of 20 MB in chunks",
        needs: CURL,
        line: "curl -fsS --proxy http://$PROXY -T - http://localhost:$HTTP/upload/chunked <$WWW/big && cmp $WWW/upload/chunked $WWW/big",
    },
    Trial {
        client: "curl",
        what: "upload of 20 MB over HTTP/2",
        needs: CURL,
        line: "curl -fsS --http2 --proxy http://$PROXY --cacert $CA -T $WWW/big https://localhost:$HTTPS/upload/h2 \
               && cmp $WWW/upload/h2 $WWW/big",
    },
    Trial {
        client: "curl",
        what: "400 URLs on one connection",
        needs: CURL,
        line: "curl -fsS --proxy http://$PROXY -w '%{num_connects}\\n' -o '#1' \"http://localhost:$HTTP/objects/[1-400].svg\" >connects; \
               ls | grep -cx '[0-9]*' | grep -x 400 && awk '{n+=$1} END {exit n!=1}' connects",
    },
    Trial {
        client: "curl",
        what: "400 URLs, 50 at a time, by name",
        needs: CURL,
        line: "curl -fsS --parallel --parallel-max 50 --proxy socks5h://$PROXY -o '#1' \"http://localhost:$HTTP/objects/[1-400].svg\" \
               && ls | grep -cx '[0-9]*' | grep -x 400",
    },
    Trial {
        client: "curl",
        what: "HEAD, ranges, 304",
        needs: CURL,
        line: "u=http://localhost:$HTTP/big; curl -fsSI --proxy http://$PROXY $u | grep -i 'content-length: 20000000' \
               && curl -fsS --proxy http://$PROXY -r 5-14 -o part $u && [ $(wc -c <part) = 10 ] \
               && curl -fsS --proxy http://$PROXY --etag-save tag -o one $u \
               && curl -fsS --proxy http://$PROXY --etag-compare tag -w '%{http_code}' -o two $u | grep -x 304",
    },
    Trial {
        client: "curl",
        what: "user and password: HTTP, SOCKS5, and a wrong one",
        needs: CURL,
        line: "u=http://localhost:$HTTP/objects/1.svg; curl -fsS --proxy http://$LOCKED --proxy-user ann:secret -o a $u \
               && curl -fsS --proxy http://$LOCKED --proxy-anyauth --proxy-user ann:secret -o b $u \
               && curl -fsS --proxy socks5h://$LOCKED --proxy-user ann:secret -o c $u \
               && curl -sS --proxy http://$LOCKED --proxy-user ann:wrong -w '%{http_code}' -o d $u | grep -x 407 \
               && ! curl -fsS --proxy socks5h://$LOCKED --proxy-user ann:wrong -o e $u",
    },
    Trial {
        client: "curl",
        what: "a closed port, an unknown name, a forbidden network",
        needs: &["curl"],
        line: "for t in localhost:$CLOSED=502 no-such-name.invalid=502 10.0.0.1=403; do curl -sS --proxy http://$PROXY -o text \
               -w '%{http_code}\\n' http://${t%=*}/ | grep -x ${t#*=} && cat text || exit 1; done",
    },
    Trial {
        client: "curl",
        what: "a WebSocket handshake by URL",
        needs: &["curl", "python3", "python:websockets.asyncio.client"],
        line: "curl -sS --http1.1 --proxy http://$PROXY -i -N --max-time 2 -H 'Connection: Upgrade' -H 'Upgrade: websocket' \
               -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' http://localhost:$WS/ >log; \
               grep -a '101 Switching Protocols' log && grep -ai 's3pPLMBiTxaQ9kYGzzhZRbK+xOo=' log",
    },
    Trial {
        client: "python websockets",
        what: "echo of 200 messages, over CONNECT and over SOCKS5",
        needs: WEBSOCKETS,
        line: "python3 $STAND/ws_client.py http://$PROXY ws://localhost:$WS/ \
               && if python3 -c 'import python_socks' 2>/dev/null; then python3 $STAND/ws_client.py socks5h://$PROXY ws://localhost:$WS/; fi",
    },
    Trial {
        client: "wget",
        what: "20 MB by URL",
        needs: &["wget", "nginx"],
        line: "wget -q -e use_proxy=yes -e http_proxy=$PROXY -O got http://localhost:$HTTP/big && cmp got $WWW/big",
    },
    Trial {
        client: "git",
        what: "clone over https, over CONNECT",
        needs: GIT,
        line: "git -c http.proxy=http://$PROXY -c http.sslCAInfo=$CA clone -q https://localhost:$HTTPS/repo.git clone \
               && git -C clone fsck --strict && [ $(git -C clone rev-list --count HEAD) = 50 ]",
    },
    Trial {
        client: "git",
        what: "clone over https, over SOCKS5",
        needs: GIT,
        line: "git -c http.proxy=socks5h://$PROXY -c http.sslCAInfo=$CA clone -q https://localhost:$HTTPS/repo.git clone \
               && git -C clone fsck --strict && [ $(git -C clone rev-list --count HEAD) = 50 ]",
    },
    Trial {
        client: "git",
        what: "clone over http, by URL",
        needs: GIT,
        line: "git -c http.proxy=http://$PROXY clone -q http://localhost:$HTTP/repo.git clone \
               && git -C clone fsck --strict && [ $(git -C clone rev-list --count HEAD) = 50 ]",
    },
    Trial {
        client: "pip",
        what: "install from an index over https",
        needs: &["python3", "python:pip", "nginx"],
        line: "python3 -m pip --isolated --disable-pip-version-check -q install --no-cache-dir --proxy http://$PROXY --cert $CA \
               --index-url https://localhost:$HTTPS/simple --target to tandem-sample && PYTHONPATH=to python3 -c 'import tandem_sample'",
    },
    Trial {
        client: "apt",
        what: "update and download from a repository over http",
        needs: &["apt-get", "dpkg-deb", "nginx"],
        line: "mkdir -p state/lists/partial cache/archives/partial && echo \"deb [trusted=yes] http://localhost:$HTTP/apt ./\" >list \
               && o=\"-q -o Acquire::http::Proxy=http://$PROXY -o Dir::Etc::sourcelist=$PWD/list -o Dir::Etc::sourceparts=- \
               -o Dir::State=$PWD/state -o Dir::Cache=$PWD/cache -o APT::Sandbox::User=root\" && apt-get $o update \
               && apt-get $o download tandem-sample && ls tandem-sample_1.0_all.deb",
    },
    Trial {
        client: "ssh",
        what: "20 MB through SOCKS5 (nc -X 5)",
        needs: SSH,
        line: "ssh -F none -i $KEY -o UserKnownHostsFile=$HOSTS -o ProxyCommand=\"nc -X 5 -x $PROXY %h %p\" -p $SSH localhost \
               cat <$WWW/big >got && cmp got $WWW/big",
    },
    Trial {
        client: "ssh",
        what: "20 MB over CONNECT (nc -X connect)",
        needs: SSH,
        line: "ssh -F none -i $KEY -o UserKnownHostsFile=$HOSTS -o ProxyCommand=\"nc -X connect -x $PROXY %h %p\" -p $SSH \
               localhost cat <$WWW/big >got && cmp got $WWW/big",
    },
    Trial {
        client: "Chromium",
        what: "a page of 400 images over HTTP/2, over CONNECT",
        needs: CHROMIUM,
        line: "$STAND/chromium --proxy-server=http://$PROXY --dump-dom https://localhost:$HTTPS/page.html | grep 'loaded 400 of 400'",
    },
    Trial {
        client: "Chromium",
        what: "the same over HTTP/1.1, by URL",
        needs: CHROMIUM,
        line: "$STAND/chromium --proxy-server=http://$PROXY --dump-dom http://localhost:$HTTP/page.html | grep 'loaded 400 of 400'",
    },
    Trial {
        client: "Chromium",
        what: "the same over SOCKS5",
        needs: CHROMIUM,
        line: "$STAND/chromium --proxy-server=socks5://$PROXY --dump-dom https://localhost:$HTTPS/page.html | grep 'loaded 400 of 400'",
    },
    Trial {
        client: "Chromium",
        what: "the same by the proxy's own proxy.pac",
        needs: CHROMIUM,
        line: "$STAND/chromium --proxy-pac-url=http://$PROXY/proxy.pac --dump-dom 'http://[::ffff:7f00:1]':$HTTP/page.html | grep 'loaded 400 of 400'",
    },
    Trial {
        client: "Chromium",
        what: "a WebSocket echo from a page",
        needs: &["chromium", "nginx", "python3", "python:websockets.asyncio.client"],
        line: "$STAND/chromium --proxy-server=http://$PROXY --dump-dom \"http://localhost:$HTTP/ws.html?$WS\" | grep 'echoed 20 of 20'",
    },
];
