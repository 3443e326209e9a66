// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// podmanPage is the page whose commands TestPodman runs, with podmanMark as the reason for
// which TestCommands does not.
const (
	podmanPage = "docs/how-to/podman.md"
	podmanMark = "TestPodman runs it"
)

// TestPodman runs the commands of the page about containers with the real podman, as root
// and as an ordinary user.
func TestPodman(t *testing.T) {
	kit.Need(t, "podman", "crun", "curl", "nginx", "dnsmasq", "unshare", "setpriv", kit.Bin("lklrun"))
	if _, err := os.Stat(kit.Bin("lklrun-amd64.oci.tar")); err != nil {
		t.Fatalf("%v; `make image` makes the image", err)
	}
	commands, errs := parsePage(podmanPage, kit.ReadFile(t, filepath.Join(kit.Root(), podmanPage)))
	for _, e := range errs {
		t.Error(e)
	}
	bin, host := kit.PublicBin(t), newHost(t)
	kit.Must(t,
		os.Rename(copySudo(t), filepath.Join(bin, "sudo")),
		os.WriteFile("/run/resolv.conf", []byte("nameserver "+serverAddr+"\n"), 0o644),
		unix.Mount("/run/resolv.conf", "/etc/resolv.conf", "", unix.MS_BIND, ""))
	t.Cleanup(func() { kit.Must(t, unix.Unmount("/etc/resolv.conf", 0)) })
	for _, user := range []struct {
		uid, commands, pages int
	}{{0, 9, 3}, {kit.OrdinaryUID, 8, 2}} {
		t.Run(fmt.Sprint("user ", user.uid), func(t *testing.T) {
			script, ran := "", 0
			for _, c := range commands {
				// The user's images are not those of root.
				if !strings.HasPrefix(c.Skip, podmanMark) || user.uid != 0 && strings.HasPrefix(c.Text, "sudo ") {
					continue
				}
				script += strings.ReplaceAll(c.Text, "IMAGE", "localhost/image") + "\n"
				ran++
			}
			if ran != user.commands {
				t.Fatalf("%s: the test runs %d commands, expected %d", podmanPage, ran, user.commands)
			}
			script += "test -z \"$(podman ps -aq)\"\n" // no container is left
			podman := kit.Podman{Host: host, UID: user.uid, Bin: bin, Conf: kit.PodmanConf + kit.PodmanUsr + "netns = \"host\"\n", Runtime: "crun"}
			cmd := podman.Command(t, script)
			before := kit.Take(t)
			r := kit.Run(t, commandLimit, cmd)
			hello, listing := strings.Count(r.Stdout, "hello\n"), strings.Count(r.Stdout, "<title>Directory listing")
			if r.Status != 0 || hello != user.pages || listing != 1 {
				t.Errorf("%d pages of the server, %d of the other container: %v", hello, listing, r)
			}
			before.Settles(interruptLimit)
		})
	}
}
