// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/testutil"
)

// browserLimit bounds all that a browser is shown: each of its waits has 30 s.
const browserLimit = 4 * time.Minute

// webPage starts lklctl web at the host and returns its process and the page.
func (p *pathSite) webPage(args ...string) (*testutil.Proc, string) {
	p.Helper()
	web := testutil.Start(p, p.host.Command(append([]string{testutil.Bin("lklctl"), "-n", p.name, "-o", "json", "web"}, args...)...))
	var said struct{ URL string }
	testutil.WaitFor(p, "the page's address", limit, func() bool {
		out, errs := web.Output()
		if !web.Running() {
			p.Fatalf("lklctl web has ended: %s%s", out, errs)
		}
		return json.Unmarshal([]byte(out), &said) == nil
	})
	return web, said.URL
}

// browse starts a script of test/web with a browser at the host, which asks for
// what do carries out.
func (p *pathSite) browse(do func(what string), script string, args ...string) {
	p.Helper()
	modules := filepath.Join(testutil.Root(), "build", "web", "node_modules")
	testutil.Need(p, "node", "/usr/bin/chromium")
	if _, err := os.Stat(modules); err != nil {
		if os.Getenv("CI") != "" {
			p.Fatalf("make browser: %v", err)
		}
		p.Skipf("make browser: %v", err)
	}
	cmd := p.host.Command(append([]string{"node", filepath.Join(testutil.Root(), "test", "web", script)}, args...)...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "TMPDIR="+testutil.Dir(p), "HOME="+testutil.Dir(p))
	answers, err := cmd.StdinPipe()
	if err != nil {
		p.Fatal(err)
	}
	node := testutil.Start(p, cmd)
	for answered := 0; ; answered++ {
		asked := func() []string {
			out, _ := node.Output()
			return strings.Split(out, "\n")[answered:]
		}
		if !testutil.Within(browserLimit, func() bool { return len(asked()) > 1 || !node.Running() }) || len(asked()) == 1 {
			break
		}
		do(asked()[0])
		if _, err := fmt.Fprintln(answers, "done"); err != nil {
			break // it has ended, and says why
		}
	}
	r := node.Wait(limit)
	p.Logf("%s", r.Stderr)
	if r.Status != 0 {
		p.Fatalf("%s: %v", script, r)
	}
}

// A browser shows both paths of a transfer, that one is cut and comes back, and
// the instance's end.
func TestWeb(t *testing.T) {
	t.Parallel()
	b := newBusy(t, "supervise")
	web, page := b.webPage()
	b.browse(func(what string) {
		switch what {
		case "cut eth1":
			cutDown.away(b.pathSite, 1)
		case "mend eth1":
			cutDown.restore(b.pathSite, 1)
		case "stop":
			b.end()
		case "start":
			b.target = b.run("supervise", "", "sleep", "600")
		default:
			t.Errorf("the browser asks for %q", what)
		}
	}, "watch.cjs", page, b.name)
	web.Signal(syscall.SIGINT)
	if r := web.Wait(limit); r.Status != 0 || strings.TrimSpace(r.Stderr) != "" {
		t.Errorf("lklctl web, interrupted: %v", r)
	}
	b.ctl("stop")
	b.target.Wait(limit)
}
