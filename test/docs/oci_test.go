// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// ociPage is the page whose commands TestOCI runs, with ociMark as the reason for which
// TestCommands does not.
const (
	ociPage = "docs/how-to/containers.md"
	ociMark = "TestOCI runs it"
)

// ociRest follows the page's commands. If lklhost dies, the container has no network,
// and no process remains. A bad annotation and a missing network are errors of podman.
const ociRest = `
echo untouched: $(podman run --rm IMAGE echo yes)
podman run -d --name dead --annotation lklrun.dev/stack=bbr -p 127.0.0.1:8081:80 IMAGE busybox httpd -f -p 80 -h /etc
curl -sS --retry 5 --retry-connrefused http://127.0.0.1:8081/passwd >/dev/null
mkdir /run/www && echo from outside >/run/www/index.html
busybox httpd -p 10.88.0.1:82 -h /run/www
podman exec dead curl -sS -m 10 http://10.88.0.1:82/
kill -KILL $(pgrep -x lklhost)
while ls /run/lklrun/*/lock; do sleep 0.1; done
if curl -sS -m 1 http://127.0.0.1:8081/passwd; then echo alive; fi
if podman exec dead busybox nc 10.88.0.1 81; then echo alive; fi
podman rm -f -t 1 dead
if podman run --rm --annotation lklrun.dev/stack=nope IMAGE true; then echo alive; fi
if podman run --rm --network host --annotation lklrun.dev/stack=bbr IMAGE true; then echo alive; fi
if pgrep -l 'lklrun|lklhost'; then echo alive; fi
test -z "$(podman ps -aq)"
`

// TestOCI runs the commands of the page about lklrun-oci with the real podman.
func TestOCI(t *testing.T) {
	kit.Need(t, "podman", "crun", "curl", "busybox", "iptables", "pgrep", "unshare", "setpriv", kit.Bin("lklrun-oci"))
	commands, errs := parsePage(ociPage, kit.ReadFile(t, filepath.Join(kit.Root(), ociPage)))
	for _, e := range errs {
		t.Error(e)
	}
	podman := kit.Podman{Host: kit.NewNetns(t, "host"), Bin: kit.PublicBin(t), Conf: kit.PodmanConf + kit.PodmanUsr, Runtime: "lklrun-oci"}
	script, ran := "", 0
	for _, c := range commands {
		if strings.HasPrefix(c.Skip, ociMark) {
			script += c.Text + "\n"
			ran++
		}
	}
	if ran != 8 {
		t.Fatalf("%s: the test runs %d commands, expected 8", ociPage, ran)
	}
	script = strings.ReplaceAll(script+ociRest, "IMAGE", "localhost/image")
	cmd := podman.Command(t, script)
	before := kit.Take(t)
	r := kit.Run(t, commandLimit, cmd)
	if r.Status != 0 || strings.Contains(r.Stdout, "alive") {
		t.Errorf("the container has a network without a stack, or a command failed: %v", r)
	}
	for _, want := range []string{
		"root:x:0:0::/root:/bin/sh", // from the published port
		"bbr ", "lklrun-oci hold busybox httpd", "[::]:80",
		"inet 10.88.0.", "qdisc fq", // of the stack bbr; the host's interface has noqueue
		"untouched: yes", "from outside\n",
	} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("the output lacks %q: %v", want, r)
		}
	}
	for _, want := range []string{`no stack "nope"`, "uses the host's network"} {
		if !strings.Contains(r.Stderr, want) {
			t.Errorf("the errors lack %q: %v", want, fmt.Sprint(r))
		}
	}
	before.Settles(interruptLimit)
}
