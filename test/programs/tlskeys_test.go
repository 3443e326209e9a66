// SPDX-License-Identifier: Apache-2.0

package programs

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/tls_clients.sh
var tlsClients string

// TestTLSKeys checks that tshark decrypts the connections of several kinds of programs in the
// files of lklrun --capture and of lklctl capture.
func TestTLSKeys(t *testing.T) {
	kit.Need(t, "/usr/bin/node", "/usr/bin/chromium", "tshark")
	s := kit.NewSite(t)
	dir := kit.Dir(t)
	nginx := webServer(t)(dir)
	kit.WriteFile(t, dir+"/www/page.html", "<body>the page</body>")
	kit.Start(t, s.Server.Command(nginx...))
	kit.Start(t, s.Server.Command(kit.Program("http3"), "serve", kit.ServerAddr, "5443"))
	kit.WaitFor(t, "the servers", kit.Limit, func() bool {
		return s.Server.Listening(t, "t", 443) && s.Server.Listening(t, "u", 5443)
	})
	for _, flags := range [][]string{{"--engine", "supervise"}, {"--engine", "trace", "--stack", "vanilla"}, {"--user", "nobody"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			out, name := kit.Dir(t), kit.NewName()
			run, late := out+"/run.pcapng", out+"/late.pcapng"
			kit.WriteFile(t, run, "a file that others may read")
			cmd := exec.Command(kit.PublicBin(t)+"/lklrun", append(append([]string{"--name", name, "--if", s.TapIf(), "--capture", run, "--tls-keys"}, flags...),
				"--", "sh", "-c", tlsClients, "sh", "https://"+kit.ServerAddr, kit.Program("http3"), kit.ServerAddr, "/usr/bin/chromium")...)
			in, err := cmd.StdinPipe()
			kit.Must(t, err)
			target := kit.Start(t, cmd)
			kit.WaitFor(t, "the program", kit.Limit, func() bool {
				out, _ := target.Output()
				return out == "ready\n" || !target.Running()
			})
			capture := kit.Start(t, exec.Command(kit.Bin("lklctl"), "capture", "-n", name, "--tls-keys", "-w", late))
			kit.WaitFor(t, "the capture", kit.Limit, func() bool {
				_, errs := capture.Output()
				return strings.Contains(errs, "capturing on") || !capture.Running()
			})
			_, err = in.Write([]byte("go\n"))
			kit.Must(t, err)
			r := target.Wait(3 * kit.Limit)
			if r.Status != 0 || strings.Count(r.Stdout, "hello\n") != 5 || !strings.Contains(r.Stdout, "the page") || !strings.Contains(r.Stderr, "whoever can read "+run+" can decrypt") {
				t.Fatal(r)
			}
			if r := capture.Wait(kit.Limit); r.Status != 0 {
				t.Fatal(r)
			}
			for _, file := range []string{run, late} {
				var paths []string
				http2, http3 := false, false
				for _, f := range kit.PacketFields(t, false, file, "http.request.uri", "http3.frame_type", "http2.headers.path") {
					if f[0] != "" {
						paths = append(paths, f[0])
					}
					http2, http3 = http2 || strings.Contains(f[2], "/page.html"), http3 || f[1] != ""
				}
				want := []string{"/hello?curl12", "/hello?curl13", "/hello?python", "/hello?node", "/hello?late"}
				if !slices.Equal(paths, want) || !http2 || !http3 {
					t.Errorf("%s: the requests are %q, want %q; HTTP/2: %v, HTTP/3: %v", file, paths, want, http2, http3)
				}
				if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
					t.Errorf("%s: %v, %v", file, st.Mode(), err)
				}
			}
			noKeysLeft(t)
		})
	}
}

// noKeysLeft checks that no file with secrets is left.
func noKeysLeft(t *testing.T) {
	t.Helper()
	kit.WaitFor(t, "end of the file with the secrets", kit.Limit, func() bool {
		left, err := filepath.Glob(filepath.Join(os.TempDir(), "lklrun-keys-*"))
		return err == nil && len(left) == 0
	})
}

// TestTLSKeysWithheld checks that without the flag nothing is written, and that a program can
// neither put anything but keys into the files, nor make lklctl read another file.
func TestTLSKeysWithheld(t *testing.T) {
	line := "CLIENT_RANDOM " + strings.Repeat("5a", 32) + " " + strings.Repeat("a5", 48) + "\n"
	secret := kit.Dir(t) + "/secret"
	kit.WriteFile(t, secret, line)
	start := func(t *testing.T, script string, flags ...string) (string, *kit.Proc) {
		t.Helper()
		name := kit.NewName()
		p := kit.Start(t, kit.Lklrun(append(append([]string{"-q", "--name", name}, flags...), "--", "sh", "-c", script+"; echo done; exec sleep 1000", "sh", secret)...))
		kit.WaitFor(t, "the program", kit.Limit, func() bool { out, _ := p.Output(); return strings.HasSuffix(out, "done\n") || !p.Running() })
		return name, p
	}
	refused := func(t *testing.T, want string, args ...string) {
		t.Helper()
		if r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), args...)); r.Status != 2 || !strings.Contains(r.Stderr, want) || strings.Count(r.Stderr, "\n") != 1 {
			t.Errorf("want status 2 and %q: %v", want, r)
		}
	}
	t.Run("no flag", func(t *testing.T) {
		file := kit.Dir(t) + "/run.pcapng"
		name, p := start(t, "env", "--capture", file)
		if out, _ := p.Output(); strings.Contains(out, "SSLKEYLOGFILE") || strings.Contains(out, "keylog") {
			t.Errorf("the environment has a key file:\n%s", out)
		}
		refused(t, "was started without --tls-keys", "capture", "-n", name, "--tls-keys", "-w", kit.Dir(t)+"/x.pcapng")
		refused(t, "requires a file", "capture", "-n", name, "--tls-keys")
		refused(t, "pcap has no place", "capture", "-n", name, "--tls-keys", "-w", "x.pcap")
	})
	for _, tt := range []struct{ name, script, want string }{
		{"a link", `rm $SSLKEYLOGFILE; ln -s $1 $SSLKEYLOGFILE`, "too many levels of symbolic links"},
		{"a pipe", `rm $SSLKEYLOGFILE; mkfifo $SSLKEYLOGFILE`, "a program of the run has replaced this file"},
		{"nothing", `rm -r $(dirname $SSLKEYLOGFILE)`, "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := kit.Dir(t) + "/run.pcapng"
			name, p := start(t, tt.script, "--tls-keys", "--capture", file)
			refused(t, tt.want, "capture", "-n", name, "--tls-keys", "-w", kit.Dir(t)+"/x.pcapng")
			p.Signal(syscall.SIGTERM)
			p.Wait(kit.Limit)
			if strings.Contains(kit.ReadFile(t, file), line) {
				t.Error("the capture has a line of another file")
			}
			noKeysLeft(t)
		})
	}
	t.Run("garbage", func(t *testing.T) {
		file := kit.Dir(t) + "/run.pcapng"
		_, p := start(t, `head -c 3000000 /dev/zero | tr '\0' x >>$SSLKEYLOGFILE; cat /etc/passwd $1 >>$SSLKEYLOGFILE; echo >>$SSLKEYLOGFILE; cat $1 >>$SSLKEYLOGFILE; truncate -s 0 $SSLKEYLOGFILE; cat $1 >>$SSLKEYLOGFILE`, "--tls-keys", "--capture", file)
		p.Signal(syscall.SIGTERM)
		p.Wait(kit.Limit)
		if got := kit.ReadFile(t, file); !strings.Contains(got, line) || strings.Contains(got, "root:") || strings.Contains(got, "xxxxxxxx") {
			t.Errorf("the capture has %d bytes, and not only the valid line", len(got))
		}
	})
	t.Run("killed", func(t *testing.T) {
		name, p := start(t, "test -w $SSLKEYLOGFILE", "--tls-keys")
		p.Signal(syscall.SIGKILL)
		p.Wait(kit.Limit)
		noKeysLeft(t)
		if r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "-n", name, "list")); strings.Contains(r.Stdout, name) {
			t.Errorf("the run is still there: %v", r)
		}
	})
}
