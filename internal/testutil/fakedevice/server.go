// SPDX-License-Identifier: Apache-2.0

package fakedevice

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/internal/testutil"
)

// ADB is a server of Debian's adb, with a port and a home of its own.
type ADB struct {
	*testutil.Proc
	t    testing.TB
	port int
	home string
}

// NewADB starts a server, without devices. It ends with the test.
func NewADB(t testing.TB) *ADB {
	t.Helper()
	testutil.Need(t, "adb")
	a := &ADB{t: t, port: 15000 + int(count.Add(1)), home: testutil.Dir(t)}
	a.Proc = testutil.Start(t, a.Command("nodaemon", "server"))
	testutil.WaitFor(t, "the adb server", limit, func() bool {
		if !a.Running() {
			t.Fatalf("adb: %v", a.Wait(limit))
		}
		// Not by adb, which would start a server of its own.
		return strings.Contains(testutil.Host.Run(t, "ss", "-Hltn"), fmt.Sprintf(":%d ", a.port))
	})
	return a
}

// Env is the environment of a program that uses this server.
func (a *ADB) Env() []string {
	return append(os.Environ(), "HOME="+a.home, fmt.Sprintf("ANDROID_ADB_SERVER_PORT=%d", a.port))
}

// Command is a command line of adb's that uses this server.
func (a *ADB) Command(args ...string) *exec.Cmd {
	cmd := exec.Command("adb", args...)
	cmd.Env = a.Env()
	return cmd
}

// Connect plugs a phone in and waits until the server says that it is in a state:
// device, offline, unauthorized.
func (a *ADB) Connect(p *Phone, state string) {
	a.t.Helper()
	r := testutil.Run(a.t, limit, a.Command("connect", p.Serial))
	testutil.WaitFor(a.t, fmt.Sprintf("%s as %s (%s)", p.Serial, state, r.Stdout+r.Stderr), limit, func() bool {
		return a.State(p) == state
	})
}

// Disconnect takes a phone away.
func (a *ADB) Disconnect(p *Phone) {
	a.t.Helper()
	testutil.OK(a.t, limit, a.Command("disconnect", p.Serial))
}

// State is what the server says of a phone, "" when it does not know it.
func (a *ADB) State(p *Phone) string {
	a.t.Helper()
	for line := range strings.Lines(testutil.OK(a.t, limit, a.Command("devices"))) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == p.Serial {
			return f[1]
		}
	}
	return ""
}
