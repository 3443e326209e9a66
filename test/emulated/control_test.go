// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// TestEmulatedControl checks that an amd64 lklctl can query an arm64 stack, and uses
// the stack's call numbers, open flags and layouts. The run uses the arm64 bundle and
// qemu-user.
func TestEmulatedControl(t *testing.T) {
	bundle, root := emulated(t)
	n := kit.NewNetns(t, "arm64ctl")
	n.Addr(t, "lo", "10.99.0.1/32")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 20<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	n.PythonHTTP(t, 8000, dir)
	cmd := n.Command(filepath.Join(bundle, "lklrun"), "--name", "far", "--engine", "preload", "--",
		filepath.Join(root, "usr", "bin", "curl"), "-sSf", "--limit-rate", "20k", "-o", "/dev/null", "http://10.99.0.1:8000/file")
	cmd.Env = append(os.Environ(), "QEMU_LD_PREFIX="+root)
	run := kit.Start(t, cmd)
	ctl := func(args ...string) kit.Result {
		t.Helper()
		return kit.Run(t, time.Minute, n.Command(append([]string{kit.Bin("lklctl"), "-n", "far"}, args...)...))
	}
	kit.WaitFor(t, "the connection", time.Minute, func() bool {
		if !run.Running() {
			out, errs := run.Output()
			t.Fatalf("the run has ended: %s%s", out, errs)
		}
		return strings.Contains(ctl("netstat", "-t").Stdout, "ESTAB")
	})
	for _, tc := range []struct {
		want string
		args []string
	}{
		{"10.99.0.1:8000", []string{"netstat", "-tip"}},
		{"net.ipv4.tcp_rmem = ", []string{"sysctl", "-a", "net.ipv4"}},
		{"eth0:", []string{"cat", "/proc/net/dev"}},
		{"Linux version", []string{"dmesg"}},
		{"TcpActiveOpens", []string{"counters"}},
		{"eth0", []string{"link"}},
		{"curl", []string{"top", "-b", "-c", "1", "-d", "0.2"}},
		{"10.99.0.1.8000", []string{"capture", "-c", "3"}},
	} {
		if r := ctl(tc.args...); r.Status != 0 || !strings.Contains(r.Stdout, tc.want) {
			t.Errorf("%v: %v", tc.args, r)
		}
	}
	if r := ctl("sysctl", "-w", "net.ipv4.tcp_keepalive_time=77"); r.Status != 0 {
		t.Errorf("%v", r)
	}
	if r := ctl("mptcp", "-o", "json"); r.Status > 1 || !json.Valid([]byte(r.Stdout)) {
		t.Errorf("mptcp: %v", r)
	}
	trace := filepath.Join(dir, "trace.pcapng")
	if r := ctl("capture", "-w", trace, "-c", "5", "tcp port 8000"); r.Status != 0 {
		t.Errorf("capture into a file: %v", r)
	}
	if st, err := os.Stat(trace); err != nil || st.Size() < 500 {
		t.Errorf("the capture: %v, %v", st, err)
	}
	if r := ctl("stop", "--grace", "2s"); r.Status != 0 {
		t.Errorf("stop: %v", r)
	}
}
