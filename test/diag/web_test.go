// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// browserLimit bounds a whole browser script; each of its waits takes up to 30 s.
const browserLimit = 4 * time.Minute

// webPage starts lklctl web on the host and returns its process and the page.
func webPage(p *testutil.PathSite, args ...string) (*testutil.Proc, string) {
	p.Helper()
	web := testutil.Start(p, p.Host.Command(append([]string{testutil.Bin("lklctl"), "-n", p.Instance, "-o", "json", "web"}, args...)...))
	var said struct{ URL string }
	testutil.WaitFor(p, "the page's address", testutil.Limit, func() bool {
		out, errs := web.Output()
		if !web.Running() {
			p.Fatalf("lklctl web has ended: %s%s", out, errs)
		}
		return json.Unmarshal([]byte(out), &said) == nil
	})
	return web, said.URL
}

// browse starts a script of testdata/web with a browser on the host. The script requests
// actions, which do carries out.
func browse(p *testutil.PathSite, do func(what string), script string, args ...string) {
	p.Helper()
	modules := filepath.Join(testutil.Root(), "build", "web", "node_modules")
	testutil.Need(p, "node", "/usr/bin/chromium")
	if _, err := os.Stat(modules); err != nil {
		if os.Getenv("CI") != "" {
			p.Fatalf("make browser: %v", err)
		}
		p.Skipf("make browser: %v", err)
	}
	cmd := p.Host.Command(append([]string{"node", testutil.TestData("web/" + script)}, args...)...)
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
			break // it has ended, and reports why
		}
	}
	r := node.Wait(testutil.Limit)
	p.Logf("%s", r.Stderr)
	if r.Status != 0 {
		p.Fatalf("%s: %v", script, r)
	}
}

// pictures returns the directory for the documentation's pictures. `make pictures` sets
// it; otherwise no pictures are kept.
func pictures(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("PICTURES"); dir != "" {
		return dir
	}
	return testutil.Dir(t)
}

// stageForBrowser prepares what the browser shows: a busy instance, or, for a picture,
// only a transfer that fills both paths.
func stageForBrowser(t *testing.T) (p *testutil.PathSite, end func()) {
	t.Helper()
	if os.Getenv("PICTURES") == "" {
		b := newBusy(t, "supervise")
		return b.PathSite, b.end
	}
	p = testutil.NewPathSite(t)
	target := p.Start("supervise", "", "socat", "-u", "/dev/zero", "TCP:"+p.Addr+":"+p.ServeTransfers(1).Port)
	return p, func() {
		testutil.Lklctl(t, "-n", p.Instance, "stop")
		target.Wait(testutil.Limit)
	}
}

// TestWeb checks that a browser shows both paths of a transfer, that one is cut and
// returns, and the end of the instance.
func TestWeb(t *testing.T) {
	t.Parallel()
	testutil.Need(t, "tshark")
	p, end := stageForBrowser(t)
	web, page := webPage(p)
	files := pictures(t)
	var next *testutil.Proc
	browse(p, func(what string) {
		switch what {
		case "cut eth1":
			testutil.CutDown.Away(p, 1)
		case "mend eth1":
			testutil.CutDown.Restore(p, 1)
		case "tshark":
			only := testutil.OK(t, testutil.Limit, exec.Command("tshark", "-r", files+"/web.pcapng", "-T", "fields", "-e", "frame.interface_name", "-Y", "tcp"))
			if got := strings.Fields(only); len(got) == 0 || strings.Count(only, "eth1") != len(got) {
				t.Errorf("tshark reads of the packets of eth1:\n%s", only)
			}
		case "stop":
			end()
		case "start":
			next = p.Start("supervise", "", "sleep", "600")
		default:
			t.Errorf("the browser asks for %q", what)
		}
	}, "watch.cjs", page, p.Instance, files)
	if err := os.Remove(files + "/web.pcapng"); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(files + "/web.png"); err != nil || st.Size() < 10<<10 || os.Getenv("PICTURES") != "" && st.Size() > 200<<10 {
		t.Errorf("the picture: %+v, %v", st, err)
	}
	web.Signal(syscall.SIGINT)
	if r := web.Wait(testutil.Limit); r.Status != 0 || strings.TrimSpace(r.Stderr) != "" {
		t.Errorf("lklctl web, interrupted: %v", r)
	}
	testutil.Lklctl(t, "-n", p.Instance, "stop")
	next.Wait(testutil.Limit)
}

// streams waits until a stream of a page has sent all the patterns.
func streams(t *testing.T, from *testutil.Netns, url string, patterns ...string) {
	t.Helper()
	curl := testutil.Start(t, from.Command("curl", "-sN", url))
	testutil.WaitFor(t, url, testutil.Limit, func() bool {
		out, errs := curl.Output()
		if !curl.Running() {
			t.Fatalf("%s has ended: %s%s", url, out, errs)
		}
		return !slices.ContainsFunc(patterns, func(p string) bool { return !regexp.MustCompile(p).MatchString(out) })
	})
	curl.Signal(syscall.SIGTERM)
	curl.Wait(testutil.Limit)
}

// TestWebPreload checks that the page of a stack inside its program shows the same as
// lklctl: the subflows, those that carry nothing and why, and the packets.
func TestWebPreload(t *testing.T) {
	t.Parallel()
	b := newBusy(t, "preload")
	web, page := webPage(b.PathSite)
	page, _, _ = strings.Cut(page, "#")
	tells := func(path string, patterns ...string) {
		t.Helper()
		streams(t, b.Host, page+path, patterns...)
	}
	events := "api/events?instance=" + b.Instance
	tells(events, `event: snapshot\n`, `"proto":"mptcp"`, `"engine":"preload"`, `"iface":"eth1",.*"rtt_us":\d`)
	testutil.CutDown.Away(b.PathSite, 1)
	tells(events, `event: snapshot\n.*"why":{"[0-9a-f]+":\[{"code":"[a-z0-9-]+","iface":"eth1"`)
	testutil.CutDown.Restore(b.PathSite, 1)

	var conns []struct {
		State    string
		Subflows []struct{ Local, Remote string }
	}
	if err := json.Unmarshal([]byte(b.ctl("mptcp", "-o", "json")), &conns); err != nil {
		t.Fatal(err)
	}
	query := "api/packets?instance=" + b.Instance
	for _, c := range conns {
		for _, f := range c.Subflows {
			query += "&flow=" + f.Local + "," + f.Remote
		}
	}
	tells(query, `event: view\n`, `event: packets\n.*"iface":"eth0","dir":"(In|Out)","text":"IP 10.*mptcp`)
	web.Signal(syscall.SIGTERM)
	if r := web.Wait(testutil.Limit); r.Status != 0 {
		t.Errorf("lklctl web, ended: %v", r)
	}
	b.end()
}

// TestWebRefuses checks that another user sees nothing of a run, and that wrong
// arguments are reported with a remedy.
func TestWebRefuses(t *testing.T) {
	t.Parallel()
	testutil.Need(t, "curl", testutil.Bin("lklctl"))
	bin := testutil.PublicBin(t)
	for _, c := range []struct {
		args   string
		status int
		said   string
	}{
		{"web --listen x", 2, `--listen "x"; expected PORT or ADDRESS:PORT`},
		{"web --listen 0.0.0.0:0", 2, "other machines can reach this address, and the connection is not encrypted; add --public"},
		{"web --listen 192.0.2.1:80 --public", 1, "--listen 192.0.2.1:80: bind: "},
		{"-n none web", 3, `no instance "none" is running`},
		{"web more", 2, `unexpected argument "more"`},
	} {
		r := testutil.Run(t, testutil.Limit, testutil.AsUser(exec.Command(bin+"/lklctl", strings.Fields(c.args)...), ""))
		if r.Status != c.status || !strings.Contains(r.Stderr, c.said) {
			t.Errorf("lklctl %s: %v; want %d, %s", c.args, r, c.status, c.said)
		}
	}
	name := testutil.NewName()
	target := testutil.Start(t, testutil.Lklrun("--name", name, "--", "sleep", "600"))
	testutil.WaitFor(t, "the run", testutil.Limit, func() bool {
		return exec.Command(testutil.Bin("lklctl"), "-n", name, "cat", "/proc/net/dev").Run() == nil || !target.Running()
	})
	web := testutil.Start(t, testutil.AsUser(exec.Command(bin+"/lklctl", "web"), ""))
	var page string
	testutil.WaitFor(t, "the page's address", testutil.Limit, func() bool {
		out, _ := web.Output()
		page = strings.TrimSpace(out)
		return strings.HasSuffix(out, "\n") || !web.Running()
	})
	if got := testutil.OK(t, testutil.Limit, exec.Command("curl", "-s", page+"api/instances")); got != "[]\n" {
		t.Errorf("another user's page lists %s", got)
	}
	streams(t, testutil.Host, page+"api/events?instance="+name, `event: instances\ndata: \[\]\n`, `"reason":"it is not running"`)
	if got := testutil.OK(t, testutil.Limit, exec.Command("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", page[:len(page)-9]+"/")); got != "403" {
		t.Errorf("a part of the token: %s", got)
	}
	testutil.Lklctl(t, "-n", name, "stop")
	target.Wait(testutil.Limit)
}
