// SPDX-License-Identifier: Apache-2.0

package run

import (
	"os"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestAddHost checks that names of --add-host come before the host's, for an ordinary
// user and for both engines.
func TestAddHost(t *testing.T) {
	kit.PublicBin(t)
	host, err := os.ReadFile("/etc/hosts")
	kit.Must(t, err)
	for _, engine := range []string{"supervise", "preload"} {
		cmd := kit.AsUser(kit.Lklrun("-q", "--name", kit.NewName(), "--engine", engine, "--if", "user",
			"--add-host", "server=192.0.2.1", "--add-host", "localhost=192.0.2.2", "--", "sh", "-c", "getent ahostsv4 server; cat /etc/hosts"), "")
		out := kit.OK(t, kit.Limit, cmd)
		for _, want := range []string{"192.0.2.1 ", "\n192.0.2.1\tserver\n192.0.2.2\tlocalhost\n" + string(host)} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in\n%s", engine, want, out)
			}
		}
	}
}
