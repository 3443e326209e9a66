// SPDX-License-Identifier: Apache-2.0

package fakedevice

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// ADB is a server of Debian's adb, with its own port and home.
type ADB struct {
	*kit.Proc
	t    testing.TB
	port int
	home string
}

// NewADB starts a server without devices. It ends with the test.
func NewADB(t testing.TB) *ADB {
	t.Helper()
	kit.Need(t, "adb")
	a := &ADB{t: t, port: 15000 + int(count.Add(1)), home: kit.Dir(t)}
	a.Proc = kit.Start(t, a.Command("nodaemon", "server"))
	kit.WaitFor(t, "the adb server", limit, func() bool {
		if !a.Running() {
			t.Fatalf("adb: %v", a.Wait(limit))
		}
		// Do not run adb for this check: it would start another server.
		return strings.Contains(kit.Host.Run(t, "ss", "-Hltn"), fmt.Sprintf(":%d ", a.port))
	})
	return a
}

// Env is the environment of a program that uses this server.
func (a *ADB) Env() []string {
	return append(os.Environ(), "HOME="+a.home, fmt.Sprintf("ANDROID_ADB_SERVER_PORT=%d", a.port))
}

// Command is an adb command that uses this server.
func (a *ADB) Command(args ...string) *exec.Cmd {
	cmd := exec.Command("adb", args...)
	cmd.Env = a.Env()
	return cmd
}

// Connect connects a phone and waits until the server reports the state: device, offline,
// unauthorized.
func (a *ADB) Connect(p *Phone, state string) {
	a.t.Helper()
	r := kit.Run(a.t, limit, a.Command("connect", p.Serial))
	kit.WaitFor(a.t, fmt.Sprintf("%s as %s (%s)", p.Serial, state, r.Stdout+r.Stderr), limit, func() bool {
		return a.State(p) == state
	})
}

// Disconnect removes a phone.
func (a *ADB) Disconnect(p *Phone) {
	a.t.Helper()
	kit.OK(a.t, limit, a.Command("disconnect", p.Serial))
}

// State is the state of a phone as reported by the server, "" if it is unknown.
func (a *ADB) State(p *Phone) string {
	a.t.Helper()
	for line := range strings.Lines(kit.OK(a.t, limit, a.Command("devices"))) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == p.Serial {
			return f[1]
		}
	}
	return ""
}
