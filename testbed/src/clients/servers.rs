//! What the trials' programs ask for: the files that nginx serves, and the servers themselves.
//!
//! Everything is made anew in the stand's folder. A server that is not installed is left out; the trials that need it are
//! skipped.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::stand::{Ports, Server, installed};

/// Objects of the page, and files for those who fetch many.
const OBJECTS: usize = 400;
/// Bytes of the large file.
const BIG: usize = 20_000_000;

/// Makes the files.
pub(super) fn make_files(folder: &Path) -> Result<()> {
    let www = folder.join("www");
    fs::create_dir_all(www.join("objects"))?;
    fs::create_dir_all(www.join("upload"))?;
    // Pseudorandom, so that nothing on the way can compress it.
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    fs::write(www.join("big"), (0..BIG).map(|_| next()).collect::<Vec<_>>())?;
    let mut page = String::from("<!doctype html><title>page</title><body>\n");
    for number in 1..=OBJECTS {
        let colour = format!("#{:06x}", number * 40_503 % 0x0100_0000);
        // Unlike each other, and padded to some kilobytes like a small picture.
        let picture = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"8\" height=\"8\"><!-- {} --><rect width=\"8\" height=\"8\" \
             fill=\"{colour}\"/></svg>",
            colour.repeat(500)
        );
        fs::write(www.join(format!("objects/{number}.svg")), picture)?;
        page += &format!("<img src=\"objects/{number}.svg\">\n");
    }
    page += "<p id=result>not loaded</p><script>onload = () => {\n\
             const all = [...document.images];\n\
             const good = all.filter(image => image.complete && image.naturalWidth == 8).length;\n\
             document.getElementById('result').textContent = `loaded ${good} of ${all.length}`;\n};</script>\n";
    fs::write(www.join("page.html"), page)?;
    fs::write(
        www.join("ws.html"),
        "<!doctype html><title>ws</title><p id=result>nothing</p><img src=\"slow/1.svg\"><script>\n\
         const socket = new WebSocket(`ws://localhost:${location.search.slice(1)}/`);\nlet echoed = 0;\n\
         socket.onopen = () => { for (let i = 0; i < 20; i++) socket.send(`message ${i}`); };\n\
         socket.onmessage = event => { if (event.data == `message ${echoed}`) echoed++;\n\
         document.getElementById('result').textContent = `echoed ${echoed} of 20`; };</script>\n",
    )?;
    fs::write(folder.join("ws_server.py"), WS_SERVER)?;
    fs::write(folder.join("ws_client.py"), WS_CLIENT)?;
    if installed("git") {
        shell(folder, MAKE_REPOSITORY)?;
    }
    if installed("python3") {
        shell(folder, MAKE_INDEX)?;
    }
    if installed("dpkg-deb") {
        shell(folder, MAKE_APT)?;
    }
    shell(folder, MAKE_CHROMIUM)
}

/// The commands that start the servers that there are, with the port by which each is known to be ready.
pub(super) fn servers(folder: &Path, ports: &Ports) -> Result<Vec<Server>> {
    let mut servers = Vec::new();
    if installed("nginx") {
        make_certificate(folder)?;
        fs::write(folder.join("nginx.conf"), nginx_configuration(folder, ports))?;
        let mut nginx = Command::new("nginx");
        nginx.arg("-e").arg(folder.join("nginx-error.log")).arg("-c").arg(folder.join("nginx.conf"));
        servers.push(Server { name: "nginx", command: nginx, port: ports.http });
    }
    if installed("python:websockets.asyncio.server") {
        let mut echo = Command::new("python3");
        echo.arg(folder.join("ws_server.py")).arg(ports.ws.to_string());
        servers.push(Server { name: "websockets", command: echo, port: ports.ws });
    }
    if installed("sshd") {
        shell(folder, MAKE_SSH)?;
        fs::write(folder.join("sshd.conf"), sshd_configuration(folder, ports))?;
        let key = fs::read_to_string(folder.join("host_key.pub"))?;
        fs::write(folder.join("known_hosts"), format!("[localhost]:{} {key}", ports.ssh))?;
        // It starts itself again for every connection, so it wants to know where it lies.
        let mut sshd = Command::new("/usr/sbin/sshd");
        sshd.args(["-D", "-e", "-f"]).arg(folder.join("sshd.conf"));
        servers.push(Server { name: "sshd", command: sshd, port: ports.ssh });
    }
    Ok(servers)
}

fn shell(folder: &Path, script: &str) -> Result<()> {
    let output = Command::new("sh").arg("-ec").arg(script).current_dir(folder).output().context("starting sh")?;
    ensure!(output.status.success(), "preparing failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A certificate for localhost that signs itself.
fn make_certificate(folder: &Path) -> Result<()> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).context("making a certificate")?;
    fs::write(folder.join("ca.pem"), made.cert.pem())?;
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem())?;
    Ok(())
}

fn nginx_configuration(folder: &Path, ports: &Ports) -> String {
    let folder = folder.display();
    let Ports { http, https, .. } = ports;
    format!(
        "daemon off; worker_processes 1; pid {folder}/nginx.pid; user root;\n\
         error_log {folder}/nginx-error.log;\n\
         events {{ worker_connections 2048; }}\n\
         http {{\n\
           types {{ text/html html; image/svg+xml svg; }}\n\
           default_type application/octet-stream; access_log off; client_max_body_size 0; keepalive_requests 100000;\n\
           client_body_temp_path {folder}/tmp; proxy_temp_path {folder}/tmp; fastcgi_temp_path {folder}/tmp;\n\
           uwsgi_temp_path {folder}/tmp; scgi_temp_path {folder}/tmp;\n\
           server {{\n\
             listen 127.0.0.1:{http}; listen 127.0.0.1:{https} ssl http2;\n\
             ssl_certificate {folder}/ca.pem; ssl_certificate_key {folder}/key.pem;\n\
             root {folder}/www; autoindex on;\n\
             # The browser shows what came once all is loaded: this holds it up for some seconds.\n\
             location /slow/ {{ alias {folder}/www/objects/; limit_rate 1000; }}\n\
             location /upload/ {{ dav_methods PUT; create_full_put_path on; }}\n\
           }}\n\
         }}\n"
    )
}

fn sshd_configuration(folder: &Path, ports: &Ports) -> String {
    let folder = folder.display();
    format!(
        "Port {}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile {folder}/sshd.pid\n\
         AuthorizedKeysFile {folder}/user_key.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
         PermitRootLogin yes\n",
        ports.ssh
    )
}

/// Fifty commits, served as plain files.
const MAKE_REPOSITORY: &str = r#"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
export GIT_CONFIG_GLOBAL=/dev/null
git init -q -b main work
for n in $(seq 50); do
    head -c 20000 www/big | tail -c $((n * 300)) >work/file$n
    git -C work add . && git -C work commit -q -m "commit $n"
done
git clone -q --bare work www/repo.git
git -C www/repo.git update-server-info
"#;

/// An index with one package, which is one module.
const MAKE_INDEX: &str = r#"
mkdir -p www/simple/tandem-sample
python3 - <<'END'
import base64, hashlib, zipfile
name = "tandem_sample-1.0"
files = {
    "tandem_sample.py": b"ANSWER = 42\n" * 20000,
    f"{name}.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tandem-sample\nVersion: 1.0\n",
    f"{name}.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
record = ""
for path, data in files.items():
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    record += f"{path},sha256={digest},{len(data)}\n"
files[f"{name}.dist-info/RECORD"] = (record + f"{name}.dist-info/RECORD,,\n").encode()
wheel = f"{name}-py3-none-any.whl"
with zipfile.ZipFile(f"www/simple/tandem-sample/{wheel}", "w") as archive:
    for path, data in files.items():
        archive.writestr(path, data)
open("www/simple/tandem-sample/index.html", "w").write(f'<!doctype html><a href="{wheel}">{wheel}</a>\n')
END
"#;

/// A repository with one package.
const MAKE_APT: &str = r#"
mkdir -p www/apt pkg/DEBIAN pkg/usr/share/tandem-sample
cp www/big pkg/usr/share/tandem-sample/
printf 'Package: tandem-sample\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example.org>\nDescription: sample\n' \
    >pkg/DEBIAN/control
dpkg-deb -Znone --root-owner-group --build pkg www/apt/tandem-sample_1.0_all.deb
cd www/apt
{
    cat ../../pkg/DEBIAN/control
    printf 'Filename: ./tandem-sample_1.0_all.deb\nSize: %s\nSHA256: %s\n' \
        "$(wc -c <tandem-sample_1.0_all.deb)" "$(sha256sum tandem-sample_1.0_all.deb | cut -d' ' -f1)"
} >Packages
"#;

const MAKE_SSH: &str = r#"
ssh-keygen -q -t ed25519 -N '' -f host_key
ssh-keygen -q -t ed25519 -N '' -f user_key
mkdir -p /run/sshd
"#;

/// Chromium as a script with the options that let it run anywhere, with a profile of its own each time.
const MAKE_CHROMIUM: &str = r#"
cat >chromium <<'END'
#!/bin/sh
profile=$(mktemp -d)
chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --disable-dev-shm-usage --ignore-certificate-errors \
    --proxy-bypass-list='<-loopback>' --user-data-dir="$profile" "$@" 2>"$profile.log"
status=$?
rm -rf "$profile"
exit $status
END
chmod +x chromium
"#;

const WS_SERVER: &str = r#"
import asyncio, sys
from websockets.asyncio.server import serve

async def echo(connection):
    async for message in connection:
        await connection.send(message)

async def main():
    async with serve(echo, "127.0.0.1", int(sys.argv[1])) as server:
        await server.serve_forever()

asyncio.run(main())
"#;

const WS_CLIENT: &str = r#"
import asyncio, os, sys
from websockets.asyncio.client import connect

async def main():
    async with connect(sys.argv[2], proxy=sys.argv[1]) as connection:
        for number in range(200):
            message = os.urandom(number * 50 + 1)
            await connection.send(message)
            assert await connection.recv() == message

asyncio.run(main())
"#;
