// SPDX-License-Identifier: Apache-2.0

package link

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// recipeServer writes a module proxy of Go, registries of npm and cargo, and repositories of Maven,
// apt and git below www.
const recipeServer = `
import base64, gzip, hashlib, io, json, os, subprocess, tarfile, zipfile
def write(path, data):
    os.makedirs(os.path.dirname("www/" + path), exist_ok=True)
    open("www/" + path, "wb").write(data)
module = "demo.test/m"
write(module + "/@v/list", b"v1.0.0\n")
write(module + "/@v/v1.0.0.info", b'{"Version": "v1.0.0", "Time": "2020-01-01T00:00:00Z"}')
write(module + "/@v/v1.0.0.mod", b"module demo.test/m\n")
b = io.BytesIO()
with zipfile.ZipFile(b, "w") as z:
    z.writestr(module + "@v1.0.0/go.mod", "module demo.test/m\n")
    z.writestr(module + "@v1.0.0/main.go", "package main\n\nfunc main() { println(42) }\n")
write(module + "/@v/v1.0.0.zip", b.getvalue())
b = io.BytesIO()
with tarfile.open(fileobj=b, mode="w:gz") as t:
    for name, text in ("package.json", '{"name": "demo", "version": "1.0.0", "main": "i.js"}'), ("i.js", "console.log(42)"):
        i = tarfile.TarInfo("package/" + name)
        i.size = len(text)
        t.addfile(i, io.BytesIO(text.encode()))
write("demo.tgz", b.getvalue())
integrity = "sha512-" + base64.b64encode(hashlib.sha512(b.getvalue()).digest()).decode()
write("demo", json.dumps({"name": "demo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "demo", "version": "1.0.0",
    "dist": {"tarball": "http://index.test/demo.tgz", "integrity": integrity}}}}).encode())
b = io.BytesIO()
with tarfile.open(fileobj=b, mode="w:gz") as t:
    for name, text in ("Cargo.toml", '[package]\nname = "demo"\nversion = "1.0.0"\n'), ("src/lib.rs", ""):
        i = tarfile.TarInfo("demo-1.0.0/" + name)
        i.size = len(text)
        t.addfile(i, io.BytesIO(text.encode()))
write("demo-1.0.0.crate", b.getvalue())
write("cargo/config.json", b'{"dl": "http://index.test/{crate}-{version}.crate"}')
write("cargo/de/mo/demo", json.dumps({"name": "demo", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False, "cksum": hashlib.sha256(b.getvalue()).hexdigest()}).encode() + b"\n")
write("maven/demo/parent/1/parent-1.pom", b"<project><modelVersion>4.0.0</modelVersion><groupId>demo</groupId><artifactId>parent</artifactId><version>1</version><packaging>pom</packaging></project>")
subprocess.run("""git init -q r && git -C r -c user.name=t -c user.email=t@test commit -q --allow-empty -m first &&
git clone -q --bare r www/repo.git && git -C www/repo.git update-server-info""", shell=True, check=True)
os.makedirs("deb/DEBIAN")
open("deb/DEBIAN/control", "w").write("Package: lklrun-demo\nVersion: 1.0\nArchitecture: all\nMaintainer: t <t@t.test>\nDescription: demo\n")
subprocess.run(["dpkg-deb", "-b", "deb", "www/demo.deb"], check=True, stdout=subprocess.DEVNULL)
deb = open("www/demo.deb", "rb").read()
write("apt/Packages", b"Package: lklrun-demo\nVersion: 1.0\nArchitecture: all\nMaintainer: t <t@t.test>\nDescription: demo\nFilename: ../demo.deb\nSize: %d\nSHA256: %s\n" % (len(deb), hashlib.sha256(deb).hexdigest().encode()))
`

// httpsServer serves a folder over HTTPS.
const httpsServer = `
import http.server, os, ssl, subprocess, sys
os.chdir(sys.argv[1])
subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "../k", "-out", "../c", "-subj", "/CN=index.test", "-days", "2"], check=True, stderr=subprocess.DEVNULL)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("../c", "../k")
s = http.server.ThreadingHTTPServer(("0.0.0.0", 443), http.server.SimpleHTTPRequestHandler)
s.socket = context.wrap_socket(s.socket, server_side=True)
s.serve_forever()
`

// recipePolicy is the policy of all recipes of one index.
const recipePolicy = `{
  // the index, and nothing else
  "allow": [{"to": "index.test", "ports": [22, 80, 443], "protocol": "tcp"}],
}`

// TestEgressRecipes checks that package managers, git and a sandbox work with a policy that names one
// index, and reach nothing else, and with the policy that an audit of them writes.
func TestEgressRecipes(t *testing.T) {
	t.Parallel()
	_, net, command := egressSite(t, map[string]string{"index.test": egressGood, "evil.test": egressEvil})
	dir := kit.Dir(t)
	build := exec.Command("/usr/bin/python3", "-c", recipeServer)
	build.Dir = dir
	kit.OK(t, kit.Limit, build)
	net.PythonHTTP(t, 80, filepath.Join(dir, "www"))
	server := kit.Start(t, net.Command("/usr/bin/python3", "-c", httpsServer, filepath.Join(dir, "www")))
	kit.WaitFor(t, "the HTTPS server", kit.Limit, func() bool { return net.Listening(t, "t", 443) || !server.Running() })
	sshd := kit.NewSSHD(t, kit.SSHD{Net: net, Address: egressGood})
	kit.OK(t, kit.Limit, exec.Command("cp", "-r", filepath.Join(dir, "www/repo.git"), sshd.Path("/home/root/repo.git")))
	policy := kit.WriteFile(t, filepath.Join(dir, "policy.json"), recipePolicy)
	for name, tt := range map[string]struct {
		program, script, stdout string
		around                  []string // a sandbox that lklrun runs in
	}{
		"curl": {"curl", `curl -sS http://index.test/demo.deb | head -c 7`, "!<arch>", nil},
		"go": {"go", `cd $d; export GOPATH=$d/go GOCACHE=$d/cache GOFLAGS=-modcacherw GONOSUMDB='*' GOTOOLCHAIN=local GOWORK=off
GOPROXY=http://index.test go mod download -json demo.test/m@v1.0.0 | grep -c '"Version": "v1.0.0"'
! GOPROXY=http://evil.test go mod download demo.test/other@v1.0.0 2>/dev/null`, "1\n", nil},
		"npm": {"npm", `cd $d; npm install --silent --no-audit --no-fund --registry http://index.test demo >&2 && node -e 'require("demo")'
! npm install --silent --fetch-retries 0 --registry http://evil.test --prefix $d/other demo 2>/dev/null >&2`, "42\n", nil},
		"apt": {"apt-get", `mkdir -p $d/lists/partial $d/cache/archives/partial; cp /var/lib/dpkg/status $d; cd $d
set -- -qq -o Dir::Etc::SourceList=$d/sources -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$d/lists -o Dir::State::status=$d/status -o Dir::Cache=$d/cache -o APT::Sandbox::User=root -o Acquire::Retries=0 -o Acquire::http::Proxy=false
echo "deb [trusted=yes] http://index.test apt/" >sources; apt-get "$@" update >&2 && apt-get "$@" download lklrun-demo >&2 && ls *.deb
echo "deb [trusted=yes] http://evil.test apt/" >sources; apt-get "$@" update 2>&1 | grep -c "^W: Failed to fetch http://evil.test"`, "lklrun-demo_1.0_all.deb\n1\n", nil},
		"git over https": {"git", `git -c http.sslVerify=false clone -q https://index.test/repo.git $d/r && git -C $d/r log --format=%s
! git -c http.sslVerify=false clone -q https://evil.test/repo.git $d/other 2>/dev/null`, "first\n", nil},
		"cargo": {"cargo", `export RUSTUP_HOME=${RUSTUP_HOME:-/root/.rustup} CARGO_HOME=$d/c CARGO_NET_RETRY=0; mkdir -p $d/p/src $d/c; cd $d/p; : >src/lib.rs
printf '[package]\nname = "p"\nversion = "1.0.0"\n[dependencies]\ndemo = { version = "1", registry = "t" }\n' >Cargo.toml
printf '[registries.t]\nindex = "sparse+http://index.test/cargo/"\n' >$d/c/config.toml
cargo fetch -q >&2 && ls $d/c/registry/cache/*
rm -rf Cargo.lock $d/c/registry; sed -i s/index.test/evil.test/ $d/c/config.toml; ! cargo fetch -q 2>/dev/null`, "demo-1.0.0.crate\n", nil},
		"git over ssh": {"git", `export GIT_SSH_COMMAND="ssh -F none -i ` + sshd.Client.Dir + `/id -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
git clone -q ssh://root@index.test/home/root/repo.git $d/r && git -C $d/r log --format=%s
! git clone -q ssh://root@evil.test/home/root/repo.git $d/other 2>/dev/null`, "first\n", nil},
		"maven": {"mvn", `cd $d; echo '<settings><mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf><url>http://index.test/maven</url></mirror></mirrors></settings>' >s.xml
echo '<project><modelVersion>4.0.0</modelVersion><parent><groupId>demo</groupId><artifactId>parent</artifactId><version>1</version></parent><artifactId>p</artifactId><packaging>pom</packaging></project>' >pom.xml
mvn -q -s s.xml -Dmaven.repo.local=$d/m validate >&2 && (cd $d/m/demo/parent/1; ls *.pom)
rm -r $d/m; sed -i s/index.test/evil.test/ s.xml; ! mvn -q -s s.xml -Dmaven.repo.local=$d/m validate >/dev/null`, "parent-1.pom\n", nil},
		"in bubblewrap": {
			"bwrap", `curl -sS http://index.test/demo.tgz | tar tzf - | head -n 1
curl -sS http://evil.test/ 2>/dev/null || echo refused`, "package/package.json\nrefused\n",
			[]string{"bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", "/tmp", "/tmp", "--tmpfs", "/run", "--unshare-pid", "--die-with-parent"},
		},
		"bubblewrap": {"bwrap", `alias b="bwrap --ro-bind / / --dev /dev --proc /proc --unshare-pid"
b curl -sS http://index.test/demo.tgz | tar tzf - | head -n 1
b curl -sS http://evil.test/ 2>/dev/null || echo refused`, "package/package.json\nrefused\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Need(t, tt.program, "openssl")
			script := `d=$(mktemp -d); export HOME=$d; trap 'rm -rf $d' EXIT` + "\n" + tt.script
			run := func(egress, script string) kit.Result {
				return kit.Run(t, 3*kit.Limit, command(slices.Concat(tt.around, []string{kit.Bin("lklrun"), "--name", kit.NewName(), "--egress", egress, "--", "sh", "-c", script})...))
			}
			// An audit of the same commands writes a policy that permits them. It names no names
			// that do not exist, such as apt asks for.
			var lines []string
			for line := range strings.Lines(script) {
				if !strings.Contains(line, "evil.test") {
					lines = append(lines, line)
				}
			}
			audit := filepath.Join(dir, name+".json")
			first, second := run("audit:"+audit, strings.Join(lines, "")), run(audit, strings.Join(lines, ""))
			text := kit.ReadFile(t, audit)
			if first.Stdout == "" || second.Stdout != first.Stdout || strings.Contains(second.Stderr, "refused tcp ") || strings.Count(text, "index.test") > 6 || strings.Contains(text, "evil") {
				t.Errorf("the audit: %v\nthe run with its policy: %v\n%s", first, second, text)
			}
			if r := run(policy, script); r.Stdout != tt.stdout || (strings.Count(r.Stderr, "refused the name evil.test:") == 1) != strings.Contains(tt.script, "evil.test") {
				t.Errorf("want %q: %v", tt.stdout, r)
			}
		})
	}
}
