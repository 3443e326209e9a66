// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	kit "github.com/lklrun/lklrun/test/kit"
)

// TestSSHD checks that both accounts accept logins over the network, and have home
// directories. They see only the installed programs of the client's machine, and no
// process outlives the server.
func TestSSHD(t *testing.T) {
	kit.Need(t, "ip", "ssh")
	var before *kit.Inventory
	outside := t
	t.Run("server", func(t *testing.T) {
		far := kit.NewNetns(t, "far")
		kit.Veth(t, kit.Host, "desk0", far, "far0")
		kit.Host.Addr(t, "desk0", "10.72.1.1/24")
		far.Addr(t, "far0", "10.72.1.2/24")
		before = kit.Take(outside)
		s := kit.NewSSHD(t, kit.SSHD{Net: far, Address: "10.72.1.2", Port: 2222, Home: "size=1m"})
		if got := s.Target("root"); got != "ssh:root@10.72.1.2:2222" {
			t.Errorf("target: %s", got)
		}
		repo := "" // the part of the repository that is visible in /tmp
		if below, ok := strings.CutPrefix(kit.Root(), "/tmp/"); ok {
			repo = strings.SplitN(below, "/", 2)[0] + "\n"
		}
		for user, id := range map[string]int{kit.SSHRoot: 0, kit.SSHUser: kit.OrdinaryUID} {
			login := func(line string) kit.Result {
				t.Helper()
				return kit.Run(t, limit, s.Client.Command(kit.Host, "-p", "2222", user+"@10.72.1.2", line))
			}
			r := login("id -u; pwd; ls -A ~ /tmp /dev/shm; ip -o -4 addr show scope global; echo lost >&2; exit 7")
			want := fmt.Sprintf("%d\n/home/%s\n/dev/shm:\n\n/home/%s:\n\n/tmp:\n%s", id, user, user, repo)
			if r.Status != 7 || !strings.HasPrefix(r.Stdout, want) || !strings.Contains(r.Stdout, "10.72.1.2/24") || r.Stderr != "lost\n" {
				t.Errorf("%s: %v", user, r)
			}
			if r := login("head -c 2000000 /dev/zero >~/large"); r.Status == 0 || !strings.Contains(r.Stderr, "No space left") {
				t.Errorf("%s, a home of 1 MB: %v", user, r)
			}
			if r := login("rm ~/large; sleep 1000 >/dev/null 2>&1 </dev/null & echo here >/run/" + user + " || echo here >/tmp/" + user); r.Status != 0 {
				t.Errorf("%s: %v", user, r)
			}
		}
		if got := kit.OK(t, limit, exec.Command("cat", s.Path("/run/root"), s.Path("/tmp/user"))); got != "here\nhere\n" {
			t.Errorf("the server's files, seen from here: %q", got)
		}
	})
	for _, p := range before.Left() {
		if strings.HasPrefix(p, "new: ") { // the veth pair is removed with the namespace
			t.Error(p)
		}
	}
}
