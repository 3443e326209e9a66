// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/without_notification.py
var withoutNotification string

// TestPreloadAuto checks a host without user notification. There, --engine auto loads the
// kernel into programs that support it and explains the consequences; doctor must print
// the same explanation.
func TestPreloadAuto(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	old := func(args ...string) kit.Result {
		t.Helper()
		args = append([]string{"-c", withoutNotification, kit.Bin("lklrun")}, args...)
		return kit.Run(t, kit.Limit, exec.Command("/usr/bin/python3", args...))
	}
	before := kit.Take(t, s.Server)
	r := old("--if", s.TapIf(), "--", "curl", "-s", kit.ServerURL+"/hello")
	if r.Status != 0 || r.Stdout != "hello\n" || !strings.Contains(r.Stderr, "loaded into the command") || len(kit.Lines(r.Stderr)) != 1 {
		t.Errorf("auto: %v", r)
	}
	kit.OneLine(t, old("--if", s.TapIf(), "--", kit.Probe(), "x"), 2, "user notification.*static program")
	kit.OneLine(t, old("--engine", "supervise", "--if", s.TapIf(), "--", "true"), 2, "user notification")
	for command, want := range map[string]string{"curl": "preload", kit.Probe(): "", "": "preload"} {
		args := []string{"doctor", "-o", "json"}
		if command != "" {
			args = append(args, command)
		}
		r := old(args...)
		var said struct{ Engine string }
		if err := json.Unmarshal([]byte(r.Stdout), &said); err != nil || said.Engine != want {
			t.Errorf("doctor %s: %v, want %q", command, r, want)
		}
	}
	before.Same()
}
