// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for spec, want := range map[string][]Target{
		"adb":                            {{KindADB, ""}},
		"adb:10.0.0.2:5555":              {{KindADB, "10.0.0.2:5555"}},
		"ssh:box":                        {{KindSSH, "box"}},
		"ssh:me@box:2222, adb:R58M":      {{KindSSH, "me@box:2222"}, {KindADB, "R58M"}},
		"all":                            {{KindAll, ""}},
		"all,ssh:root@[2001:db8::1]:22":  {{KindAll, ""}, {KindSSH, "root@[2001:db8::1]:22"}},
		"adb:emulator-5554,adb:emu-5556": {{KindADB, "emulator-5554"}, {KindADB, "emu-5556"}},
	} {
		got, err := Parse(spec)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", spec, err, diff)
		}
		var again []string
		for _, target := range got {
			again = append(again, target.String())
		}
		if g := strings.Join(again, ","); g != strings.ReplaceAll(spec, " ", "") {
			t.Errorf("%s is written as %s", spec, g)
		}
	}
	for spec, want := range map[string]string{
		"":                 `""; expected adb, adb:SERIAL, ssh:[USER@]HOST[:PORT], all, or a comma-separated list of these`,
		"adb:":             `"adb:"; expected adb`,
		"ssh:":             `"ssh:"; expected adb`,
		"ssh":              `"ssh"; expected adb`,
		"all:x":            `"all:x"; expected adb`,
		"phone":            `"phone"; expected adb`,
		"adb,adb":          `"adb": given twice`,
		"all,adb:x":        `"all,adb:x": all includes every adb device`,
		"adb:a b":          `"adb:a b": invalid character in the serial number`,
		"ssh:-oX=y":        `"ssh:-oX=y": not an ssh destination`,
		"ssh:-x@host":      `"ssh:-x@host": not an ssh destination`,
		"ssh:@host":        `"ssh:@host": not an ssh destination`,
		"ssh:host:0":       `"ssh:host:0": "0" is not a port`,
		"ssh:host:65536":   `"65536" is not a port`,
		"ssh:host:":        `"" is not a port`,
		"ssh:h;reboot":     `not an ssh destination`,
		"ssh:me@[fd00::1]": "",
	} {
		_, err := Parse(spec)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %s", spec, err, want)
		}
	}
}

func TestAddress(t *testing.T) {
	for name, want := range map[string]struct {
		destination string
		port        int
	}{
		"box": {"box", 0}, "me@box:22": {"me@box", 22}, "fd00::1": {"fd00::1", 0}, "root@[fd00::1]": {"root@fd00::1", 0}, "[fd00::1]:2022": {"fd00::1", 2022},
	} {
		destination, port, err := Target{KindSSH, name}.address()
		if destination != want.destination || port != want.port || err != nil {
			t.Errorf("%s: %s, %d, %v", name, destination, port, err)
		}
	}
}

func TestArch(t *testing.T) {
	for machine, want := range map[string]string{"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "armv8l": "arm", "i686": "", "riscv64": "", "armv6l": ""} {
		if got := archOf(machine); got != want {
			t.Errorf("%s: %q, want %q", machine, got, want)
		}
	}
}

func TestFree(t *testing.T) {
	for line, want := range map[string]int64{
		"/dev/block/dm-43  111531440 8413156 103118284   8% /data": 103118284 << 10,
		"                  111531440 8413156 103118284   8% /data": 103118284 << 10, // a long name has its own line
		"/data                 1.2G    200.0M     1.0G   4096":     -1,
		"": -1,
	} {
		if got := freeOf(line); got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
}

// A shell parses the output of Quote as the original word.
func TestQuote(t *testing.T) {
	words := []string{"plain", "", "a b", `it's "so" \ $HOME`, "`id`", "a\nb", "~", "*", "#x", "-n", "é", "a;b", "{a,b}", "!x", "\x01"}
	line := "printf '%s\\0'"
	for _, w := range words {
		line += " " + Quote(w)
	}
	for _, shell := range []string{"sh", "bash"} {
		out, err := exec.CommandContext(t.Context(), shell, "-c", line).Output()
		if diff := cmp.Diff(strings.Join(words, "\x00")+"\x00", string(out)); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", shell, err, diff)
		}
	}
}

// Expand expands only "all". Other targets need no adb server.
func TestExpand(t *testing.T) {
	want := []Target{{KindSSH, "box"}, {KindADB, ""}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := Expand(ctx, want)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}
