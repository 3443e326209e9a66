// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// parts unpacks a bundle into dir with the machine's tar(1). It returns the files'
// contents by their names without the directory.
func parts(t *testing.T, path, dir string) map[string]string {
	t.Helper()
	kit.OK(t, kit.Limit, exec.Command("tar", "-xzf", path, "-C", dir, "--strip-components=1"))
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".tar.gz") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[f.Name()] = string(b)
	}
	return all
}

// TestPanicBundle checks, with each engine, that a panic leaves a bundle, and that one
// line tells its path. The bundle contains the connections that were open when lklrun
// last saved the state. It contains no secret of the command line.
func TestPanicBundle(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			s := kit.NewSite(t)
			s.Web(kit.Nginx{})
			dir := kit.Dir(t)
			k := s.Talk("-v", "--engine", engine, "--if", s.TapIf(), "--sysctl", "net.ipv4.tcp_fastopen_key=00000001-00000002-00000003-00000004",
				"--capture", "ring,size=64K", "--capture", filepath.Join(dir, "all.pcapng"))
			k.Connect("c", kit.ServerAddr, 80)
			asked := k.Say(`(keep["c"].sendall(b"GET /last HTTP/1.1\r\nHost: x\r\n\r\n"), keep["c"].recv(12))[1]`)
			if !strings.HasPrefix(asked, "b'HTTP/1.1 ") {
				t.Fatal(asked)
			}
			looked := func() int {
				_, said := k.Proc.Output()
				return strings.Count(said, "saved the stack's state")
			}
			was := looked()
			kit.WaitFor(t, "a look at the stack", kit.Limit, func() bool { return looked() > was+1 }) // the first one may have been in progress
			// The packets of this bundle come from the ring. So the other bundle will
			// contain them, too.
			kit.WaitFor(t, "the last packets in lklctl bundle", kit.Limit, func() bool {
				dir := kit.Dir(t)
				kit.Lklctl(t, "-n", k.Name, "bundle", "--to", filepath.Join(dir, "b.tar.gz"))
				got := parts(t, filepath.Join(dir, "b.tar.gz"), dir)
				return strings.Contains(got["README.txt"], "their payload is not redacted") && hasLast(t, filepath.Join(dir, "packets.pcapng"))
			})
			kit.Crash(t, k)
			r := k.Proc.Wait(kit.Limit)
			_, path, told := strings.Cut(r.Stderr, "are in "+kit.StateHome+"/lklrun/")
			path, _, _ = strings.Cut(path, "\n")
			if !told || strings.Contains(path, " ") {
				t.Fatalf("it does not say where the bundle is: %v", r)
			}
			got := parts(t, filepath.Join(kit.StateHome, "lklrun", path), dir)
			wants := map[string][]string{
				"README.txt":   {"kernel panicked", "instance " + k.Name, "sockets.json", "the last snapshot before the panic", "packets.pcapng", "replaced by ***, except in packets", filepath.Join(dir, "all.pcapng")},
				"dmesg.txt":    {"Kernel panic - not syncing: sysrq triggered crash", "Linux version"},
				"log":          {"Kernel panic"},
				"state.json":   {k.Name, "python3"},
				"plan.json":    {"tcp_fastopen_key", "***", engine, kit.StackAddr},
				"journal":      {},
				"sockets.json": {kit.ServerAddr, `"tcp"`},
				"counters.txt": {"TcpActiveOpens 1\n", "eth0.rx_packets "},
				"account.json": {"sockets_stack"},
				"engine.txt":   {"sockets.stack "},
			}
			if engine == "preload" { // the packets in the ring are lost with the program
				delete(wants, "account.json")
				delete(wants, "engine.txt")
				wants["README.txt"] = append(wants["README.txt"], "account.json, engine.txt: ")
			}
			for name, want := range wants {
				text, ok := got[name]
				if !ok {
					t.Errorf("no %s: %s", name, got["README.txt"])
				}
				for _, w := range want {
					if !strings.Contains(text, w) {
						t.Errorf("%s lacks %q:\n%.2000s", name, w, text)
					}
				}
			}
			for _, file := range []string{"packets.pcapng", "all.pcapng"} {
				if !hasLast(t, filepath.Join(dir, file)) {
					t.Errorf("%s lacks the last connection", file)
				}
			}
			if strings.Contains(r.Stderr, "--capture") {
				t.Errorf("it tells of a capture's end: %s", r.Stderr)
			}
			for name, text := range got {
				if strings.Contains(text, "00000001-00000002") {
					t.Errorf("%s has the key", name)
				}
			}
		})
	}
}

// hasLast reports whether tshark finds the SYN, the request and the answer of the
// talker's connection in a file.
func hasLast(t *testing.T, file string) bool {
	t.Helper()
	var syn, asked, answered bool
	for _, f := range kit.PacketFields(t, false, file, "frame.interface_name", "frame.packet_flags_direction", "ip.dst", "tcp.flags.syn", "http.request.uri", "http.response.code") {
		syn = syn || f[2] == kit.ServerAddr && f[3] == "1"
		asked = asked || f[0] == "eth0" && f[1] == "0x00000002" && f[4] == "/last"
		answered = answered || f[1] == "0x00000001" && f[5] != ""
	}
	return syn && asked && answered
}

// TestPanicNoBundle checks, with each engine, a panic if the directory cannot be written. The
// panic must still be reported, in one line with the reason for the missing bundle.
func TestPanicNoBundle(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			s := kit.NewSite(t)
			t.Setenv("XDG_STATE_HOME", "/dev/null")
			before := kit.Take(t, s.Server)
			k := s.Talk("--engine", engine, "--if", s.TapIf(), "--if", "tap:new0,ip=10.75.0.1/24")
			k.Say("1")
			kit.Crash(t, k)
			r := k.Proc.Wait(kit.Limit)
			if said := kit.Lines(r.Stderr); len(said) != 1 || !strings.Contains(said[0], "sysrq triggered crash") || !strings.Contains(said[0], "saving its log: ") || r.Status != 125 {
				t.Errorf("%v", r)
			}
			before.Same()
		})
	}
}

// TestBundle checks the bundle of a running instance, and the log of its kernel.
func TestBundle(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			b := newBusy(t, engine)
			dir := kit.Dir(t)
			path := filepath.Join(dir, "b.tar.gz")
			var made struct {
				File  string
				Bytes int64
			}
			if err := json.Unmarshal([]byte(b.ctl("bundle", "--to", path, "-o", "json")), &made); err != nil || made.File != path || made.Bytes == 0 {
				t.Errorf("%+v, %v", made, err)
			}
			got := parts(t, path, dir)
			for name, want := range map[string]string{
				"README.txt": "made by lklctl bundle", "dmesg.txt": "Linux version", "sockets.json": "mptcp", "counters.txt": "\neth1.rx_bytes ",
				"sysctl.conf": "net.ipv4.tcp_fastopen_key = ***", "proc_net_fib_trie.txt": "10.74.2.2", "plan.json": engine, "state.json": b.Instance, "account.json": "nginx",
			} {
				if !strings.Contains(got[name], want) {
					t.Errorf("%s lacks %q:\n%.500s", name, want, got[name])
				}
			}
			if readme := got["README.txt"]; strings.Contains(readme, "Missing:") && !strings.Contains(readme, "resolv.conf: ") {
				t.Error(readme)
			}
			if said := b.ctl("dmesg"); !strings.Contains(said, "Linux version 6.12") {
				t.Errorf("dmesg: %.500s", said)
			}
			var r struct {
				Time, Level, Text string
				Uptime            float64 `json:"uptime_s"`
			}
			first, _, _ := strings.Cut(b.ctl("dmesg", "-o", "json"), "\n")
			if err := json.Unmarshal([]byte(first), &r); err != nil || r.Level != "notice" || r.Time == "" || !strings.HasPrefix(r.Text, "Linux version") {
				t.Errorf("dmesg -o json: %v: %s", err, first)
			}
			b.end()
		})
	}
}
