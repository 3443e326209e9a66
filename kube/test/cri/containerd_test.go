// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/kube/test/containerd"
	"github.com/lklrun/lklrun/test/kit"
)

const (
	www   = "/run/www"
	hello = "from the pod\n"

	endLimit = 20 * time.Second
)

// TestContainerd gives stacks to pods with the runtime handler of lklrun.
func TestContainerd(t *testing.T) {
	testPods(t, newNode(t, false))
}

// TestNRI gives stacks to pods with the plug-in for NRI. Their OCI runtime is crun.
func TestNRI(t *testing.T) {
	n := newNode(t, true)
	testPods(t, n)
	if t.Failed() {
		return
	}
	// The plug-in leaves pods with the runtime handler to lklrun-oci.
	handled := *n
	handled.handler = "lklrun"
	testRestart(&handled).end()
	p := testContainerdRestart(n)
	p.end()
	n.left([]*pod{p})
	// Without the plug-in, stacks remain, and a pod that requires it has no containers.
	kept := n.start(sandbox("kept", map[string]string{"lklrun.dev/stack": "bbr"}, nil))
	kept.run("server", object{}, web...)
	n.run("sh", "-c", "kill -KILL $(pgrep -f '^/opt/nri/plugins/50-lklrun')")
	p = n.start(sandbox("alone", map[string]string{
		"lklrun.dev/stack": "bbr", "required-plugins.noderesource.dev/pod": "[lklrun]",
	}, nil))
	if _, err := p.try("server", object{}, web...); err == nil || !strings.Contains(err.Error(), "lklrun") {
		t.Errorf("want an error without the plug-in: %v", err)
	}
	testUntouched(n).end()
	if got := n.fetch("http://" + kept.addr + "/"); got != hello {
		t.Errorf("the node gets %q from a pod that is older than the end of the plug-in", got)
	}
	// The plug-in ends the stacks of pods that have ended without it.
	kept.end()
	p.end()
	n.StopContainerd()
	n.StartContainerd()
	n.left(nil)
}

// testPods tests pods, and checks that nothing of them is left.
func testPods(t *testing.T, n *node) {
	n.run("sh", "-c", "mkdir "+www+" && printf '"+hello+"' >"+www+"/index.html && echo from the host >"+www+"/host")
	// Prometheus can read the counters of all pods, which come and go, at one address.
	n.run("sh", "-c", "umask 077; echo "+token+" >/run/token")
	kit.Start(t, n.Command("lklctl", "counters", "--listen", "9100", "--token-file", "/run/token"))
	var pods []*pod
	for _, part := range []struct {
		name string
		test func(*node) *pod
	}{
		{"stack", testStack}, {"restart", testRestart}, {"untouched", testUntouched},
		{"forward", testForward}, {"escape", testEscape}, {"killed", testKilled},
		{"refused", testRefused}, {"dead", testDead},
	} {
		t.Run(part.name, func(t *testing.T) {
			if p := part.test(n.in(t)); p != nil {
				pods = append(pods, p)
			}
		})
	}
	if t.Failed() {
		return
	}
	for _, p := range pods {
		p.n = n
		p.end()
	}
	if got := n.metrics(); got != "" {
		t.Errorf("there are metrics without a pod: %s", got)
	}
	n.left(pods)
}

// left checks that nothing of the pods is left.
func (n *node) left(pods []*pod) {
	t := n.t
	rules := n.run("iptables-save")
	for _, p := range pods {
		if strings.Contains(rules, p.id) {
			t.Errorf("rules of pod %s are left: %s", p.id, rules)
		}
	}
	if out := n.run("ip", "-o", "link"); strings.Contains(out, "veth") {
		t.Errorf("devices of the pods are left: %s", out)
	}
	var out string
	if !kit.Within(endLimit, func() bool {
		out = n.run("ps", "ax", "-o", "args")
		return !strings.Contains(out, "lklhost") && !strings.Contains(out, "lklrun --detached")
	}) {
		t.Errorf("processes are left: %s", out)
	}
	if out := n.run("ls", "/run"); strings.Contains(out, "lklrun-oci") {
		t.Errorf("files are left: %s", out)
	}
}

// web is the command of a server on port 80.
var web = []string{"busybox", "httpd", "-f", "-p", "80", "-h", www}

// fetch fetches a page from the node.
func (n *node) fetch(url string) string {
	n.t.Helper()
	return n.run("curl", "-sS", "-m", "20", "--retry", "5", "--retry-connrefused", url)
}

// token is part of the address of the metrics.
const token = "0123456789abcdef"

// metrics returns what Prometheus reads.
func (n *node) metrics() string {
	n.t.Helper()
	return n.fetch("http://127.0.0.1:9100/" + token + "/metrics")
}

// testStack checks that all containers of a pod share a stack, which has the settings of
// the pod's annotations and sysctls.
func testStack(n *node) *pod {
	t := n.t
	p := n.start(sandbox("web", map[string]string{
		"lklrun.dev/stack": "vanilla", "lklrun.dev/sysctl.net.ipv4.tcp_congestion_control": "bbr",
	}, object{
		"linux": object{
			"sysctls":         map[string]string{"net.ipv4.tcp_fin_timeout": "17"},
			"securityContext": object{"privileged": true, "namespaceOptions": namespaces}, // permits privileged containers
		},
		"portMappings": []object{{"containerPort": 80, "hostPort": 8080}},
	}))
	// A user without capabilities may listen on port 80, as in every pod of containerd.
	p.run("server", object{"runAsUser": object{"value": 1000}, "noNewPrivs": true}, web...)
	side := p.run("side", object{}, "sleep", "1000")
	if got := n.fetch("http://" + p.addr + "/"); got != hello {
		t.Errorf("the node gets %q from the pod's address", got)
	}
	if got := n.fetch("http://127.0.0.1:8080/"); got != hello {
		t.Errorf("the node gets %q from the pod's port on the node", got)
	}
	if got := side.exec("curl", "-sS", "-m", "20", "http://127.0.0.1/"); got != hello {
		t.Errorf("the other container gets %q over lo", got)
	}
	if got := side.exec("cat", "/proc/sys/net/ipv4/tcp_congestion_control"); !n.nri && got != "bbr\n" {
		t.Errorf("the container's file has %q, not the setting of the stack", got)
	}
	if list := n.run("lklctl", "list"); !strings.Contains(list, p.instance()) || len(kit.Lines(list)) != 2 { // one is the heading
		t.Errorf("want the pod's stack and no other one: %s", list)
	}
	if list := n.run("lklctl", "list"); !strings.Contains(list, " pod default/web\n") {
		t.Errorf("the list does not name the pod: %s", list)
	}
	if got, want := n.run("lklctl", "-o", "json", "list"), `"uid": "web"`; !strings.Contains(got, want) {
		t.Errorf("no %s in %s", want, got)
	}
	if got, want := n.metrics(), `lklrun_TcpPassiveOpens_total{instance="`+p.instance()+`",namespace="default",pod="web"} `; !strings.Contains(got, want) {
		t.Errorf("no %s in %s", want, got)
	}
	if r := kit.Run(t, kit.Limit, n.Command("lklctl", "-n", "default/none", "netstat")); r.Status != 3 ||
		!strings.Contains(r.Stderr, "pod default/none has no running stack (looked in /run/lklrun); pods with a stack: default/web") {
		t.Errorf("a pod without a stack: %v", r)
	}
	// NRI does not report the sysctls of a pod.
	if got := n.run("lklctl", "-n", "default/web", "sysctl", "net.ipv4.tcp_fin_timeout"); !n.nri && !strings.Contains(got, "17") {
		t.Errorf("the pod's sysctl is not that of the stack: %s", got)
	}
	// A connection to the server that sends nothing remains.
	var c net.Conn
	n.Net.Do(t, func() (err error) {
		c, err = net.Dial("tcp", p.addr+":80")
		return err
	})
	defer c.Close()
	if got := side.exec("ss", "-tinH", "sport", "=", ":80"); !strings.Contains(got, " bbr ") {
		t.Errorf("the server's connection does not use bbr: %s", got)
	}
	n.run("busybox", "httpd", "-p", containerd.Gateway+":82", "-h", www)
	if got := side.exec("curl", "-sS", "-m", "20", "http://"+containerd.Gateway+":82/host"); got != "from the host\n" {
		t.Errorf("the pod gets %q from the node", got)
	}
	// Neither privileges nor another command line lead out of the stack.
	for name, security := range map[string]object{
		"privileged": {"privileged": true},
		"unconfined": {"seccomp": object{"profileType": "Unconfined"}},
		"default":    {"seccomp": object{"profileType": "RuntimeDefault"}},
	} {
		c := p.run(name, security, "sleep", "1000")
		if got := c.exec("ip", "-4", "addr", "show", "eth0"); !strings.Contains(got, p.addr) {
			t.Errorf("container %s is not on the stack: %s", name, got)
		}
	}
	return p
}

// testRestart checks that the stack of a pod remains while the pod has no container.
func testRestart(n *node) *pod {
	p := n.start(sandbox("restart", map[string]string{"lklrun.dev/stack": "bbr"}, nil))
	for _, name := range []string{"first", "second"} {
		c := p.run(name, object{}, web...)
		if got := n.fetch("http://" + p.addr + "/"); got != hello {
			n.t.Errorf("the node gets %q from the %s container", got, name)
		}
		n.call("StopContainer", object{"containerId": c.id})
		n.call("RemoveContainer", object{"containerId": c.id})
	}
	return p
}

// testContainerdRestart checks that stacks continue while containerd does not run, and that
// the plug-in serves old and new pods after containerd has started again.
func testContainerdRestart(n *node) *pod {
	t := n.t
	p := n.start(sandbox("older", map[string]string{"lklrun.dev/stack": "bbr"}, nil))
	c := p.run("server", object{}, web...)
	n.StopContainerd()
	if out := kit.Run(t, kit.Limit, n.Command("pgrep", "-f", "^/opt/nri/plugins/50-lklrun")); out.Status != 1 {
		t.Errorf("the plug-in runs without containerd: %v", out)
	}
	if got := n.fetch("http://" + p.addr + "/"); got != hello {
		t.Errorf("the node gets %q while containerd does not run", got)
	}
	n.StartContainerd()
	if got := n.fetch("http://" + p.addr + "/"); got != hello {
		t.Errorf("the node gets %q after the restart of containerd", got)
	}
	if got := c.exec("ip", "-4", "addr", "show", "eth0"); !strings.Contains(got, p.addr) {
		t.Errorf("a command in an older container is not on the stack: %s", got)
	}
	side := p.run("side", object{}, "sleep", "1000")
	if got := side.exec("curl", "-sS", "-m", "20", "http://127.0.0.1/"); got != hello {
		t.Errorf("a new container of the pod gets %q over lo", got)
	}
	p.killStack()
	n.ended(c)
	p.run("again", object{}, web...)
	if got := n.fetch("http://" + p.addr + "/"); got != hello {
		t.Errorf("the node gets %q from a stack that the restarted plug-in has started again", got)
	}
	testRestart(n).end()
	return p
}

// testUntouched checks that a pod without annotations has the network of the node's kernel.
func testUntouched(n *node) *pod {
	t := n.t
	p := n.start(sandbox("plain", nil, nil))
	c := p.run("plain", object{}, web...)
	if got := n.fetch("http://" + p.addr + "/"); got != hello {
		t.Errorf("the node gets %q", got)
	}
	if got := c.exec("grep", "Seccomp:", "/proc/self/status"); !strings.Contains(got, "\t0") {
		t.Errorf("the container has a filter: %s", got)
	}
	if got := c.exec("ip", "-d", "link", "show", "eth0"); !strings.Contains(got, "veth") {
		t.Errorf("eth0 is not the node's: %s", got)
	}
	if list := n.run("lklctl", "list"); strings.Contains(list, p.instance()) {
		t.Errorf("the pod has a stack: %s", list)
	}
	return p
}

// testRefused checks that a pod with a bad annotation does not start, and why. With NRI,
// only its containers do not start.
func testRefused(n *node) *pod {
	t := n.t
	for _, c := range []struct {
		notes map[string]string
		linux object
		want  string
	}{
		{map[string]string{"lklrun.dev/stack": "nope"}, object{}, `no stack "nope"`},
		{map[string]string{"lklrun.dev/stack": "/tmp/stack"}, object{}, "expected the name of a stack"},
		{map[string]string{"lklrun.dev/stak": "bbr"}, object{}, "lklrun.dev/stak: unknown"},
		{map[string]string{"lklrun.dev/stack": "bbr", "lklrun.dev/interfaces": "wire:a"}, object{}, "lklrun.dev/interfaces: unknown"},
		{map[string]string{"lklrun.dev/sysctl.net.ipv4.tcp_ecn": "1"}, object{}, "lklrun.dev/stack: missing"},
		{map[string]string{"lklrun.dev/stack": "bbr", "lklrun.dev/sysctl.net.ipv4.nope": "1"}, object{}, "net.ipv4.nope"},
		{map[string]string{"lklrun.dev/stack": "bbr"},
			object{"securityContext": object{"namespaceOptions": object{"network": "NODE"}}}, "uses the host's network"},
	} {
		config := sandbox("bad", c.notes, object{"linux": c.linux})
		var err error
		if n.nri {
			p := n.start(config)
			_, err = p.try("server", object{}, web...)
			p.end()
		} else {
			_, err = n.try("RunPodSandbox", object{"runtimeHandler": n.handler, "config": config})
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: want an error with %q: %v", c.notes, c.want, err)
		}
	}
	return nil
}

// testDead checks that a pod whose lklhost has been killed has no network, and never that
// of the node's kernel. A container that starts later gets a new stack. The plug-in kills
// the containers of the old one.
func testDead(n *node) *pod {
	t := n.t
	p := n.start(sandbox("dead", map[string]string{
		"lklrun.dev/stack": "vanilla", "lklrun.dev/sysctl.net.ipv4.tcp_congestion_control": "bbr",
	}, nil))
	server := p.run("server", object{}, web...)
	kit.WaitFor(t, "the relay", endLimit, func() bool { return n.run(p.inside("ss", "-Hltn")...) != "" })
	// This container fetches a page each time the test asks for it.
	const fetch = "curl -sS -m 5 http://" + containerd.Gateway + ":82/host; echo status $?"
	side := p.run("side", object{}, "sh", "-c",
		fetch+"; for i in 1 2; do until test -e "+www+"/dead$i; do sleep 0.1; done; "+fetch+"; done; sleep 1000")
	statuses := func(want int) string {
		var text string
		kit.WaitFor(t, "the container's output", endLimit, func() bool {
			text = n.run("sh", "-c", "cat /run/node/logs/side.log")
			return strings.Count(text, "status ") == want
		})
		return text
	}
	if got := statuses(1); !strings.Contains(got, "from the host") {
		t.Fatalf("the container has no network: %s", got)
	}
	// The relay resets its connections.
	relayed := n.Command(p.inside("busybox", "nc", "127.0.0.1", "80")...)
	in, err := relayed.StdinPipe()
	kit.Must(t, err)
	defer in.Close()
	client := kit.Start(t, relayed)
	kit.WaitFor(t, "a connection through the relay", endLimit, func() bool {
		return n.run(p.inside("ss", "-Htn", "state", "established", "dport", "=", ":80")...) != ""
	})
	p.killStack()
	client.Wait(endLimit)
	p.unheard("the end of the stack")
	isolated := func(fetches int) {
		n.run("touch", fmt.Sprintf("%s/dead%d", www, fetches-1))
		if got := statuses(fetches); strings.Count(got, "from the host") != 1 || strings.Count(got, "status 0") != 1 {
			t.Errorf("the container has a network without a stack: %s", got)
		}
	}
	if n.nri {
		n.ended(side)
		n.ended(server)
	} else {
		isolated(2)
	}
	if out, err := side.try("busybox", "nc", containerd.Gateway, "82"); err == nil {
		t.Errorf("a command starts in the container: %s", out)
	}
	if r := kit.Run(t, kit.Limit, n.Command("curl", "-sS", "-m", "2", "http://"+p.addr+"/")); r.Status == 0 {
		t.Errorf("the pod answers: %v", r)
	}

	// If the stack does not start again, no container starts, and the node's kernel does
	// not get the addresses.
	netns := n.run("sed", `s/.*"netns":"\([^"]*\)".*/\1/`, "/run/lklrun-oci/"+p.instance())
	inPod := func(args ...string) string {
		return n.run(append([]string{"nsenter", "--net=" + strings.TrimSpace(netns)}, args...)...)
	}
	inPod("ip", "link", "set", "eth0", "down", "name", "away")
	if _, err := p.try("refused", object{}, web...); err == nil || !strings.Contains(err.Error(), "starting the stack of the pod again") {
		t.Errorf("want an error for a container without a stack: %v", err)
	}
	if out := inPod("ip", "addr", "show", "dev", "away"); strings.Contains(out, p.addr) {
		t.Errorf("the node's kernel has the address of the pod: %s", out)
	}
	inPod("ip", "link", "set", "away", "name", "eth0")
	inPod("ip", "link", "set", "eth0", "up")

	n.call("StopContainer", object{"containerId": server.id})
	late := p.run("late", object{}, web...)
	if got := n.fetch("http://" + p.addr + "/"); got != hello {
		t.Errorf("the node gets %q from a container with a new stack", got)
	}
	if got := late.exec("curl", "-sS", "-m", "20", "http://"+containerd.Gateway+":82/host"); got != "from the host\n" {
		t.Errorf("a container with a new stack gets %q", got)
	}
	if got := n.run("lklctl", "-n", p.instance(), "sysctl", "net.ipv4.tcp_congestion_control"); !strings.Contains(got, "bbr") {
		t.Errorf("the new stack lacks a setting of the pod: %s", got)
	}
	if list := n.run("lklctl", "list"); strings.Count(list, p.instance()) != 1 {
		t.Errorf("want one stack of the pod: %s", list)
	}
	if !n.nri {
		isolated(3) // it has lost its stack for ever
	}
	return p
}

// ended waits until a container has been killed.
func (n *node) ended(c container) {
	n.t.Helper()
	kit.WaitFor(n.t, "the end of the container", endLimit, func() bool {
		s := n.call("ContainerStatus", object{"containerId": c.id})["status"].(object)
		return s["state"] == "CONTAINER_EXITED" && fmt.Sprint(s["exitCode"]) == "137"
	})
}

// killStack kills lklhost of the pod, and waits for the end of the run.
func (p *pod) killStack() {
	n := p.n
	n.t.Helper()
	n.run("kill", "-KILL", p.process("lklhost"))
	kit.WaitFor(n.t, "the end of the run", endLimit, func() bool {
		return kit.Run(n.t, kit.Limit, n.Command("test", "-e", "/run/lklrun/"+p.instance())).Status != 0
	})
}
