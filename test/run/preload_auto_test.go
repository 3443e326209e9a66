// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// withoutNotification runs a command on a host without seccomp user notification. It
// installs a filter that answers seccomp(2) as a kernel without it does.
const withoutNotification = `
import ctypes, os, struct, sys
ALLOW, ERRNO = 0x7fff0000, 0x00050000
LD, JEQ, JSET, RET = 0x20, 0x15, 0x45, 0x06
code = [
    (LD, 0, 0, 0), (JEQ, 0, 5, 317),      # seccomp
    (LD, 0, 0, 16), (JEQ, 0, 1, 2),       # GET_ACTION_AVAIL
    (RET, 0, 0, ERRNO | 95),
    (LD, 0, 0, 24), (JSET, 1, 0, 8),      # NEW_LISTENER
    (RET, 0, 0, ALLOW), (RET, 0, 0, ERRNO | 22),
]
text = b"".join(struct.pack("HBBI", *c) for c in code)
buf = ctypes.create_string_buffer(text)
prog = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(buf))
libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall(317, 1, 0, prog):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
`

// TestPreloadAuto checks a host without user notification. There, --engine auto loads
// the kernel into programs that support it and explains the consequences; doctor says
// the same.
func TestPreloadAuto(t *testing.T) {
	s := testutil.NewSite(t)
	s.Web(testutil.Nginx{})
	old := func(args ...string) testutil.Result {
		t.Helper()
		args = append([]string{"-c", withoutNotification, testutil.Bin("lklrun")}, args...)
		return testutil.Run(t, testutil.Limit, exec.Command("/usr/bin/python3", args...))
	}
	before := testutil.Take(t, s.Server)
	r := old("--if", s.TapIf(), "--", "curl", "-s", testutil.ServerURL+"/hello")
	if r.Status != 0 || r.Stdout != "hello\n" || !strings.Contains(r.Stderr, "loaded into the command") || len(testutil.Lines(r.Stderr)) != 1 {
		t.Errorf("auto: %v", r)
	}
	testutil.OneLine(t, old("--if", s.TapIf(), "--", testutil.Probe(), "x"), 2, "user notification.*static program")
	testutil.OneLine(t, old("--engine", "supervise", "--if", s.TapIf(), "--", "true"), 2, "user notification")
	for command, want := range map[string]string{"curl": "preload", testutil.Probe(): "", "": "preload"} {
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
