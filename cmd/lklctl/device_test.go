// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/heredevice"
)

// devices makes every target a device that runs on this machine.
func devices(t *testing.T) map[string]*heredevice.Device {
	t.Helper()
	kit.Need(t, kit.Bin("lklrun"))
	all := map[string]*heredevice.Device{}
	for _, name := range []string{"adb:one", "adb:two"} {
		all[name] = heredevice.New(name)
	}
	was := verb.Prepare
	verb.Prepare = func(_ context.Context, target remote.Target, _ remote.Options) (*remote.Ready, error) {
		return all[target.String()].Ready(filepath.Dir(kit.Bin("lklrun"))), nil
	}
	t.Cleanup(func() {
		verb.Prepare = was
		// No directory for sockets may remain.
		left, err := filepath.Glob(filepath.Join(os.TempDir(), "lklctl-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
	return all
}

// moving matches values that differ from call to call.
var moving = regexp.MustCompile(`[0-9.]+(ms|us|s)\b|"(uptime|time|age)[a-z_]*": [^,\n]*|\b[0-9]+\b`)

// A verb prints the same with --device as on the device itself.
func TestDevice(t *testing.T) {
	site(t, "web")
	devices(t)
	for _, args := range [][]string{
		{"list"}, {"list", "-o", "json"}, {"netstat"}, {"netstat", "-tip"}, {"netstat", "-o", "json"}, {"mptcp"}, {"mptcp", "-o", "json"},
		{"counters", "-o", "json"}, {"sysctl", "-a", "net.ipv4.*"}, {"sysctl", "net.ipv4.tcp_rmem"}, {"cat", "/proc/net/dev"},
		{"link"}, {"addr"}, {"mptcp", "limits"}, {"mptcp", "endpoint"}, {"account"}, {"guard"}, {"lease"}, {"path"},
	} {
		here := lklctl(t, args...)
		there := lklctl(t, append([]string{"--device", "adb:one"}, args...)...)
		there.out = strings.Replace(there.out, "    \"device\": \"adb:one\",\n", "", 1)
		for _, r := range []*result{&here, &there} {
			r.out = moving.ReplaceAllString(r.out, "#")
			r.out = regexp.MustCompile(` +`).ReplaceAllString(r.out, " ")
		}
		if diff := cmp.Diff(here, there, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%v (-here +there):\n%s", args, diff)
		}
	}
}

// With several devices, the output shows the device of each line.
func TestDevices(t *testing.T) {
	instanceOf(t, "web")
	devices(t)
	text := ok(t, "--device", "adb:one,adb:two", "list")
	for _, want := range []string{"DEVICE", "adb:one  web", "adb:two  web"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if all := decode[[]instance.Info](t, "--device", "adb:one,adb:two", "list"); len(all) != 2 || all[1].Device != "adb:two" || !filepath.IsAbs(all[1].Dir) {
		t.Errorf("%+v", all)
	}
	r := lklctl(t, "--device", "adb:one,adb:two", "netstat", "-l", "--json", "--fail-empty")
	var rows []struct {
		Device string
		Status int
		Result json.RawMessage
	}
	if err := json.Unmarshal([]byte(r.out), &rows); err != nil || r.status != 1 || len(rows) != 2 || rows[0].Device != "adb:one" || string(rows[0].Result) != "[]" || rows[0].Status != 1 {
		t.Errorf("%+v, %+v", r, rows)
	}
	for line := range strings.Lines(ok(t, "--device", "adb:one,adb:two", "sysctl", "kernel.ostype")) {
		if !strings.HasPrefix(line, "adb:one: kernel.ostype = ") && !strings.HasPrefix(line, "adb:two: kernel.ostype = ") {
			t.Errorf("%q", line)
		}
	}
	refused(t, 2, []string{"--device", "adb:one,adb:two", "top", "-b"}, "lklctl top supports only one device at a time")
	refused(t, 2, []string{"--device", "adb:one,adb:two", "netstat", "--watch"}, "--watch supports only one device")
	refused(t, 2, []string{"--device", "usb:1", "list"}, `"usb:1"; expected adb, adb:SERIAL`)
	t.Setenv("LKLRUN_DEVICE", "adb:two")
	if all := decode[[]instance.Info](t, "list"); len(all) != 1 || all[0].Device != "adb:two" {
		t.Errorf("by the variable: %+v", all)
	}
}

// An unreachable device produces one line and status 125.
func TestDeviceGone(t *testing.T) {
	instanceOf(t, "web")
	d := devices(t)["adb:one"]
	refused(t, 3, []string{"--device", "adb:one", "-n", "none", "netstat"}, `no instance "none" is running; running instances: web`)
	d.Cut()
	refused(t, 125, []string{"--device", "adb:one", "list"}, "adb:one: the connection to the device")
}

// Wireshark's list includes the instances of devices that answer.
func TestDeviceExtcap(t *testing.T) {
	instanceOf(t, "web")
	all := devices(t)
	t.Setenv("LKLRUN_DEVICE", "adb:one,adb:two")
	text := ok(t, "extcap", "--extcap-interfaces", "--extcap-version=4.0")
	for _, want := range []string{
		"interface {value=lklrun-web-lo}{display=lklrun web: lo",
		"interface {value=lklrun-web@adb:one}{display=lklrun adb:one web: all interfaces}",
		"interface {value=lklrun-web-lo@adb:two}{display=lklrun adb:two web: lo",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if text := ok(t, "extcap", "--extcap-interface", "lklrun-web-lo@adb:two", "--extcap-dlts"); !strings.Contains(text, "EN10MB") {
		t.Error(text)
	}
	all["adb:one"].Cut()
	r := lklctl(t, "extcap", "--extcap-interfaces")
	if r.status != 0 || strings.Contains(r.out, "adb:one") || !strings.Contains(r.out, "adb:two") || !strings.Contains(r.out, "value=lklrun-web}") {
		t.Errorf("with one device gone: %+v", r)
	}
	refused(t, 125, []string{"extcap", "--extcap-interface", "lklrun-web-lo@adb:one", "--extcap-dlts"}, "adb:one: the connection to the device")
}

// A device that no longer answers counts as unreachable, so a waiting verb ends
// soon.
func TestDeviceSilent(t *testing.T) {
	instanceOf(t, "web")
	d := devices(t)["adb:one"]
	ended := make(chan result, 1)
	go func() { ended <- lklctl(t, "--device", "adb:one", "wait") }()
	kit.WaitFor(t, "the list and a connection", time.Minute, func() bool { return d.Started() == 2 })
	d.Hang()
	began := time.Now()
	r := <-ended
	if took := time.Since(began); r.status != 125 || !strings.Contains(r.errors, "adb:one: the connection to the device timed out: no data for 8s") || took > 30*time.Second {
		t.Errorf("after %v: %+v", took, r)
	}
}
