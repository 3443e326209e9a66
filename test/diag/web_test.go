// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// webPage starts lklctl web on the host and returns its process and the page.
func webPage(p *kit.PathSite, args ...string) (*kit.Proc, string) {
	p.Helper()
	web := kit.Start(p, p.Host.Command(append([]string{kit.Bin("lklctl"), "-n", p.Instance, "-o", "json", "web"}, args...)...))
	var said struct{ URL string }
	kit.WaitFor(p, "the page's address", kit.Limit, func() bool {
		out, errs := web.Output()
		if !web.Running() {
			p.Fatalf("lklctl web has ended: %s%s", out, errs)
		}
		return json.Unmarshal([]byte(out), &said) == nil
	})
	return web, said.URL
}

// pictures returns the directory for the documentation's pictures. `make pictures` sets
// it; otherwise no pictures are kept.
func pictures(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("PICTURES"); dir != "" {
		return dir
	}
	return kit.Dir(t)
}

// stageForBrowser prepares the page's content: a busy instance or, for a picture, only a
// transfer that fills both paths.
func stageForBrowser(t *testing.T) (p *kit.PathSite, end func()) {
	t.Helper()
	if os.Getenv("PICTURES") == "" {
		b := newBusy(t, "supervise")
		return b.PathSite, b.end
	}
	p = kit.NewPathSite(t)
	target := p.Start("supervise", "", "socat", "-u", "/dev/zero", "TCP:"+p.Addr+":"+p.ServeTransfers(1).Port)
	kit.WaitFor(t, "the run", kit.Limit, func() bool {
		return p.Host.Command(kit.Bin("lklctl"), "-n", p.Instance, "cat", "/proc/net/dev").Run() == nil || !target.Running()
	})
	return p, func() {
		kit.Lklctl(t, "-n", p.Instance, "stop")
		target.Wait(kit.Limit)
	}
}

// TestWeb checks that a browser shows both paths of a transfer, the cut and the return of
// one path, and the end of the instance.
func TestWeb(t *testing.T) {
	t.Parallel()
	kit.Need(t, "tshark")
	p, end := stageForBrowser(t)
	web, page := webPage(p)
	files := pictures(t)
	var next *kit.Proc
	kit.Browse(t, p.Host, func(what string) {
		switch what {
		case "cut eth1":
			kit.CutDown.Away(p, 1)
		case "mend eth1":
			kit.CutDown.Restore(p, 1)
		case "tshark":
			only := kit.OK(t, kit.Limit, exec.Command("tshark", "-r", files+"/web.pcapng", "-T", "fields", "-e", "frame.interface_name", "-Y", "tcp"))
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
	}, kit.TestData("web/watch.cjs"), page, p.Instance, files)
	if err := os.Remove(files + "/web.pcapng"); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(files + "/web.png"); err != nil || st.Size() < 10<<10 || os.Getenv("PICTURES") != "" && st.Size() > 150<<10 {
		t.Errorf("the picture: %+v, %v", st, err)
	}
	web.Signal(syscall.SIGINT)
	if r := web.Wait(kit.Limit); r.Status != 0 || strings.TrimSpace(r.Stderr) != "" {
		t.Errorf("lklctl web, interrupted: %v", r)
	}
	kit.Lklctl(t, "-n", p.Instance, "stop")
	next.Wait(kit.Limit)
}

// streams waits until a stream of a page has sent all the patterns.
func streams(t *testing.T, from *kit.Netns, url string, patterns ...string) {
	t.Helper()
	curl := kit.Start(t, from.Command("curl", "-sN", url))
	kit.WaitFor(t, url, kit.Limit, func() bool {
		out, errs := curl.Output()
		if !curl.Running() {
			t.Fatalf("%s has ended: %s%s", url, out, errs)
		}
		return !slices.ContainsFunc(patterns, func(p string) bool { return !regexp.MustCompile(p).MatchString(out) })
	})
	curl.Signal(syscall.SIGTERM)
	curl.Wait(kit.Limit)
}

// TestWebPreload checks the page of a stack inside its program. The page must show the
// same as lklctl: the subflows, those that carry no data and the reason, and the packets.
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
	kit.CutDown.Away(b.PathSite, 1)
	tells(events, `event: snapshot\n.*"why":\[{"code":"[a-z0-9-]+","iface":"eth1"`)
	kit.CutDown.Restore(b.PathSite, 1)

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
	if r := web.Wait(kit.Limit); r.Status != 0 {
		t.Errorf("lklctl web, ended: %v", r)
	}
	b.end()
}

// TestWebRefuses checks that another user sees nothing of a run, and that wrong
// arguments are reported with a remedy.
func TestWebRefuses(t *testing.T) {
	t.Parallel()
	kit.Need(t, "curl", kit.Bin("lklctl"))
	bin := kit.PublicBin(t)
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
		r := kit.Run(t, kit.Limit, kit.AsUser(exec.Command(bin+"/lklctl", strings.Fields(c.args)...), ""))
		if r.Status != c.status || !strings.Contains(r.Stderr, c.said) {
			t.Errorf("lklctl %s: %v; want %d, %s", c.args, r, c.status, c.said)
		}
	}
	name := kit.NewName()
	target := kit.Start(t, kit.Lklrun("--name", name, "--", "sleep", "600"))
	kit.WaitFor(t, "the run", kit.Limit, func() bool {
		return exec.Command(kit.Bin("lklctl"), "-n", name, "cat", "/proc/net/dev").Run() == nil || !target.Running()
	})
	web := kit.Start(t, kit.AsUser(exec.Command(bin+"/lklctl", "web"), ""))
	var page string
	kit.WaitFor(t, "the page's address", kit.Limit, func() bool {
		out, _ := web.Output()
		page = strings.TrimSpace(out)
		return strings.HasSuffix(out, "\n") || !web.Running()
	})
	if got := kit.OK(t, kit.Limit, exec.Command("curl", "-s", page+"api/instances")); got != "[]\n" {
		t.Errorf("another user's page lists %s", got)
	}
	streams(t, kit.Host, page+"api/events?instance="+name, `event: instances\ndata: \[\]\n`, `"reason":"it is not running"`)
	if got := kit.OK(t, kit.Limit, exec.Command("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", page[:len(page)-9]+"/")); got != "403" {
		t.Errorf("a part of the token: %s", got)
	}
	kit.Lklctl(t, "-n", name, "stop")
	target.Wait(kit.Limit)
}

// TestWebWires checks the picture of a client and a server that two wires join, and of a
// third instance on a wire with three ends: the traffic of a transfer appears on the
// wires that carry it, in its direction.
func TestWebWires(t *testing.T) {
	kit.Need(t, "iperf3", kit.Bin("lklrun"), kit.Bin("lklctl"))
	host, lab := kit.NewNetns(t, "host"), kit.NewName()
	if os.Getenv("PICTURES") != "" {
		lab = "demo"
	}
	run := func(node string, ifs []string, command ...string) *kit.Proc {
		args := []string{kit.Bin("lklrun"), "-q", "--name", lab + "." + node}
		for _, i := range ifs {
			args = append(args, "--if", "wire:"+lab+"."+i)
		}
		return kit.Start(t, host.Command(append(append(args, "--"), command...)...))
	}
	server := run("server", []string{"a,ip=10.75.1.2/24,rate=100mbit", "b,ip=10.75.2.2/24,rate=50mbit", "lan,ip=10.75.3.2/24"}, "iperf3", "-s")
	kit.WaitFor(t, "the server", kit.Limit, func() bool { return kit.StackListens(t, lab+".server", 5201) || !server.Running() })
	observer := run("observer", []string{"lan,ip=10.75.3.3/24"}, "sleep", "600")
	kit.WaitFor(t, "the observer", kit.Limit, func() bool {
		return host.Command(kit.Bin("lklctl"), "-n", lab+".observer", "exec", "--", "ping", "-c1", "-w1", "10.75.3.2").Run() == nil || !observer.Running()
	})
	client := run("client", []string{"a,ip=10.75.1.1/24,rate=100mbit", "b,ip=10.75.2.1/24,rate=50mbit", "lan,ip=10.75.3.1/24"}, "iperf3", "-t", "120", "-c", "10.75.1.2")

	web := kit.Start(t, host.Command(kit.Bin("lklctl"), "web"))
	var page string
	kit.WaitFor(t, "the page's address", kit.Limit, func() bool {
		out, _ := web.Output()
		page = strings.TrimSpace(out)
		return strings.HasSuffix(out, "\n") || !web.Running()
	})
	t.Cleanup(func() {
		if t.Failed() {
			out, errs := client.Output()
			t.Logf("the client: %s%s", out, errs)
		}
	})
	streams(t, host, page+"api/events", `event: overview\n.*"name":"`+lab+`\.client".*"type":"wire","host":"`+lab+`\.a","name":"eth0",.*"tx_bit_s":[1-9]\d{6,}`)
	files := ""
	if os.Getenv("PICTURES") != "" {
		files = pictures(t)
	}
	kit.Browse(t, host, func(what string) {
		if what != "end observer" {
			t.Errorf("the browser asks for %q", what)
		}
		kit.Lklctl(t, "-n", lab+".observer", "stop")
		observer.Wait(kit.Limit)
	}, kit.TestData("web/wires.cjs"), page, lab, files)

	for _, node := range []string{"client", "server"} {
		kit.Lklctl(t, "-n", lab+"."+node, "stop")
	}
	client.Wait(kit.Limit)
	server.Wait(kit.Limit)
	web.Signal(syscall.SIGINT)
	if r := web.Wait(kit.Limit); r.Status != 0 || strings.TrimSpace(r.Stderr) != "" {
		t.Errorf("lklctl web, interrupted: %v", r)
	}
}
