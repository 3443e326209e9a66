// SPDX-License-Identifier: Apache-2.0

package cri

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/kube/test/containerd"
	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/peer.py
var peer string

//go:embed testdata/forward.py
var forward string

// inside returns a command of the node in the pod's network namespace, as containerd
// enters it for PortForward.
func (p *pod) inside(args ...string) []string {
	p.n.t.Helper()
	info := p.n.call("PodSandboxStatus", object{"podSandboxId": p.id, "verbose": true})["info"].(object)
	_, rest, _ := strings.Cut(info["info"].(string), `"type":"network","path":"`)
	path, _, ok := strings.Cut(rest, `"`)
	if !ok {
		p.n.t.Fatalf("the pod has no network namespace: %v", info)
	}
	return append([]string{"nsenter", "--net=" + path}, args...)
}

// unheard waits until no process of the node listens in the pod's network namespace.
func (p *pod) unheard(after string) {
	p.n.t.Helper()
	list := p.inside("ss", "-Hltn")
	kit.WaitFor(p.n.t, "end of the relay's listeners after "+after, endLimit, func() bool { return p.n.run(list...) == "" })
}

// log waits until the output of a container of the node has a text, and returns it.
func (n *node) log(name, want string) (text string) {
	n.t.Helper()
	if !kit.Within(endLimit, func() bool {
		text = n.run("cat", "/run/node/logs/"+name+".log")
		return strings.Contains(text, want)
	}) {
		n.t.Fatalf("the output of %s has no %q within %v: %q", name, want, endLimit, text)
	}
	return text
}

// testForward checks the relay from the loopback interface of the pod's network namespace
// to the stack, which PortForward uses.
func testForward(n *node) *pod {
	t := n.t
	dir := kit.Dir(t)
	kit.WriteFile(t, filepath.Join(dir, "peer.py"), peer)
	kit.WriteFile(t, filepath.Join(dir, "forward.py"), forward)
	n.run("cp", filepath.Join(dir, "peer.py"), filepath.Join(dir, "forward.py"), www)
	p := n.start(sandbox("forward", map[string]string{"lklrun.dev/stack": "bbr"}, object{
		"linux": object{"securityContext": object{"privileged": true, "namespaceOptions": namespaces}},
	}))
	server := p.run("peer", object{"privileged": true}, "python3", www+"/peer.py")
	n.log("peer", "ready")
	want := `the pod's 127.0.0.1: 5000000 bytes
the pod's ::1: 5000000 bytes
only ::1: ConnectionRefusedError
large: True
the pod's address: 10240000
no listener: ConnectionRefusedError ConnectionRefusedError ConnectionRefusedError
the pod resets: ConnectionResetError
the pod ends: b''
crowd: some of 110 refused
after the crowd: 5000000 bytes
before its end: 5000000 bytes ended
after its end: ConnectionRefusedError
`
	if diff := cmp.Diff(want, n.run(p.inside("python3", www+"/forward.py", p.addr)...)); diff != "" {
		t.Errorf("the clients report (-want +got):\n%s", diff)
	}
	for _, end := range []string{" end\n", " reset\n"} {
		n.log("peer", end)
	}
	kit.WaitFor(t, "reset of a connection whose server does not read", endLimit, func() bool {
		return server.exec("ss", "-tnH", "state", "established", "sport", "=", ":7006") == ""
	})
	for port, want := range map[int]string{7009: "answer to hello", 7000: "connection refused"} {
		cmd := n.Command("cricall", containerd.Socket, "PortForward", fmt.Sprintf(`{"podSandboxId": %q, "port": [%d]}`, p.id, port))
		cmd.Stdin = strings.NewReader("hello")
		if r := kit.Run(t, kit.Limit, cmd); !strings.Contains(r.Stdout+r.Stderr, want) {
			t.Errorf("PortForward to port %d: want %q: %v", port, want, r)
		}
	}
	// The relay has one direction. A server of the node's kernel in the pod's network
	// namespace is out of reach for the pod, and for everybody outside of the namespace.
	n.run(p.inside("sh", "-c", "ip link set lo up; busybox httpd -p 9000 -h "+www+"; busybox httpd -p '[::1]:9001' -h "+www)...)
	if got := n.run(p.inside("curl", "-sS", "-m", "5", "http://127.0.0.1:9000/")...); got != hello {
		t.Errorf("the server of the test does not answer: %q", got)
	}
	for _, url := range []string{"http://127.0.0.1:9000/", "http://[::1]:9001/", "http://" + p.addr + ":9000/"} {
		if out, err := server.try("curl", "-sS", "-m", "5", url); err == nil || !strings.Contains(err.Error(), "status 7") {
			t.Errorf("the pod reaches the node's kernel at %s: %s (%v)", url, out, err)
		}
	}
	r := kit.Run(t, kit.Limit, n.Command("curl", "-sS", "-m", "5", "http://"+p.addr+":9000/"))
	if r.Status != 7 {
		t.Errorf("the node reaches the kernel in the pod's network namespace: %v", r)
	}
	n.run("sh", "-c", "kill $(pgrep -f '^busybox httpd -p.*900')")
	n.call("StopContainer", object{"containerId": server.id})
	p.unheard("the end of the server")
	return p
}
