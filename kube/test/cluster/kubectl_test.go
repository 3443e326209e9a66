// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"archive/tar"
	"os"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/kube/test/containerd"
	"github.com/lklrun/lklrun/test/kit"
)

const agentName = "localhost/lklrun:1"

// agentImage returns an image of lklrun and lklctl.
func agentImage(t *testing.T) []byte {
	text, err := os.ReadFile(kit.Bin("lklrun"))
	kit.Must(t, err)
	return containerd.ProgramImage(t, agentName, []string{"/bin/lklrun"}, []string{kit.Bin("lklctl"), "sleep"},
		containerd.File{Name: "bin/lklrun", Kind: tar.TypeReg, Text: string(text)},
		containerd.File{Name: "bin/lklctl", Kind: tar.TypeSymlink, Text: kit.Bin("lklctl")},
	)
}

// agents returns a DaemonSet whose pods contain lklrun.
func agents() object {
	labels := object{"app.kubernetes.io/name": "lklrun"}
	return object{
		"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": object{"name": "lklrun", "namespace": "lklrun"},
		"spec": object{"selector": object{"matchLabels": labels}, "template": object{
			"metadata": object{"labels": labels},
			"spec": object{"hostPID": true, "terminationGracePeriodSeconds": 0, "containers": []object{{
				"name": "agent", "image": agentName, "imagePullPolicy": "Never", "command": []string{"sleep", "100000"},
				"securityContext": object{
					"readOnlyRootFilesystem": true, "seccompProfile": object{"type": "RuntimeDefault"},
					"capabilities": object{"drop": []string{"ALL"}, "add": []string{"SYS_PTRACE"}},
				},
			}}},
		}},
	}
}

// webPod returns a pod with nginx. It is on the stack bbr, if stack is set.
func webPod(namespace, name string, stack bool, selector object) object {
	notes := object{}
	if stack {
		notes = object{"lklrun.dev/stack": "bbr", "required-plugins.noderesource.dev/pod": "[lklrun]"}
	}
	return object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"namespace": namespace, "name": name, "annotations": notes},
		"spec": object{"terminationGracePeriodSeconds": 1, "nodeSelector": selector, "containers": []object{{
			"name": "server", "image": webName, "imagePullPolicy": "Never",
			"readinessProbe": object{"httpGet": object{"path": "/", "port": 80}, "periodSeconds": 1},
		}}},
	}
}

// lklctl runs kubectl lklctl on the node.
func (c *cluster) lklctl(args ...string) kit.Result {
	c.t.Helper()
	return kit.Run(c.t, kit.Limit, c.Command(append([]string{"env", "KUBECONFIG=" + admin, "kubectl", "lklctl"}, args...)...))
}

// TestKubectl runs verbs on the stacks of pods by kubectl.
func TestKubectl(t *testing.T) {
	c := newCluster(t)
	c.Import(containerd.NewImage(t)) // of the sandboxes
	c.Import(webImage(t))
	c.Import(agentImage(t))
	for _, name := range []string{"shop", "lklrun"} {
		c.kube("create", "namespace", name)
	}
	if r := c.lklctl("list"); r.Status != 2 || !strings.Contains(r.Stderr, "namespace lklrun has no pod of lklrun; install its DaemonSet") {
		t.Errorf("no DaemonSet: %v", r)
	}
	c.apply(webPod("shop", "web", true, nil))
	c.apply(webPod("shop", "plain", false, nil))
	c.apply(webPod("shop", "late", true, object{"no": "such"}))
	c.kube("wait", "--for=condition=Ready", "-n", "shop", "pod/web", "pod/plain", "--timeout=60s")
	fails := func(status int, want string, args ...string) {
		t.Helper()
		if r := c.lklctl(args...); r.Status != status || r.Stdout != "" || r.Stderr != "lklctl: "+want+"\n" {
			t.Errorf("%s: want status %d and %q: %v", args, status, want, r)
		}
	}
	fails(2, "node:node: namespace lklrun has no pod with the label app.kubernetes.io/name=lklrun there; install the DaemonSet of lklrun, or use --agent-namespace", "-n", "shop", "web", "netstat")
	c.apply(agents())
	c.kube("rollout", "status", "-n", "lklrun", "daemonset/lklrun", "--timeout=60s")

	fails(3, "pod none: not found; kubectl get pods --namespace shop lists the pods", "-n", "shop", "none", "netstat")
	fails(3, "pod web: not found; kubectl get pods lists the pods of this namespace; -n NAMESPACE selects another one", "web", "netstat")
	fails(3, "pod shop/late is not on a node yet (Pending); see kubectl describe pod --namespace shop late", "-n", "shop", "late", "netstat")
	fails(3, "pod shop/plain has no running stack (looked on node:node); pods with a stack: shop/web", "-n", "shop", "plain", "netstat")
	fails(125, "kubectl: Error in configuration: context was not found for specified context: none", "--context", "none", "web", "netstat")

	ok := func(args ...string) string {
		t.Helper()
		r := c.lklctl(args...)
		if r.Status != 0 || r.Stderr != "" {
			t.Errorf("kubectl lklctl %s: %v", args, r)
		}
		return r.Stdout
	}
	if list := ok("list"); !strings.Contains(list, "node:node  ") || !strings.Contains(list, " pod shop/web\n") {
		t.Error(list)
	}
	if got := ok("-n", "shop", "web", "netstat", "-ln"); !strings.Contains(got, "0.0.0.0:80") || !strings.Contains(got, "nginx(") {
		t.Error(got)
	}
	ok("-n", "shop", "web", "sysctl", "-w", "net.ipv4.tcp_fin_timeout=17")
	if got := ok("-n", "shop", "web", "exec", "--", "cat", "/proc/sys/net/ipv4/tcp_fin_timeout"); got != "17\n" {
		t.Errorf("a program on the stack reads %q", got)
	}
	if r := c.lklctl("-n", "shop", "web", "exec", "--", "sh", "-c", "echo out; echo err >&2; exit 7"); r.Status != 7 || r.Stdout != "out\n" || r.Stderr != "err\n" {
		t.Errorf("a program's output and status: %v", r)
	}
	testRemoteCapture(c)
	testLater(c)
	kit.WaitFor(t, "the end of the programs on the node", kit.Limit, c.calls(0))
}

// calls returns whether lklctl has that number of programs on the node.
func (c *cluster) calls(n int) func() bool {
	return func() bool { return strings.Count(c.Run("ps", "ax", "-o", "args"), "\nlklrun device --node") == n }
}

// testRemoteCapture checks that a capture is written where kubectl runs, and that it may be
// standard output. Also if kubectl lklctl is killed, the programs on the node end.
func testRemoteCapture(c *cluster) {
	t := c.t
	addr := c.kube("get", "-n", "shop", "pod", "web", "-o", "jsonpath={.status.podIP}")
	const captured = `export KUBECONFIG=` + admin + `
kubectl lklctl -n shop web capture -c 4 -w /run/a.pcapng tcp port 80 2>/run/a.err & pid=$!
until grep -q 'capturing on' /run/a.err || ! kill -0 $pid; do sleep 0.05; done
curl -sS -m 20 http://ADDR/ && wait $pid && tcpdump -nr /run/a.pcapng 2>/dev/null | wc -l
{ kubectl lklctl -n shop web capture -c 4 -w - tcp port 80 2>/run/b.err; echo $? >/run/b.status; } >/run/b.pcapng & pid=$!
until grep -q 'capturing on' /run/b.err || ! kill -0 $pid; do sleep 0.05; done
curl -sS -m 20 http://ADDR/ && wait $pid && cat /run/b.status && tcpdump -nr - </run/b.pcapng 2>/dev/null | wc -l
`
	r := kit.Run(t, kit.Limit, c.Command("sh", "-c", strings.ReplaceAll(captured, "ADDR", addr)))
	if want := "hello\n4\nhello\n0\n4\n"; r.Stdout != want {
		t.Errorf("captures: want %q: %v", want, r)
	}
	kit.Start(t, c.Command("env", "KUBECONFIG="+admin, "kubectl-lklctl", "-n", "shop", "web", "capture", "-w", "/run/c.pcapng", "tcp"))
	kit.WaitFor(t, "the programs on the node", kit.Limit, c.calls(2)) // the list and a connection
	c.Run("sh", "-c", "kill -KILL $(pgrep -f '^kubectl-lklctl')")
	kit.WaitFor(t, "their end", kit.Limit, c.calls(0))
}

// testLater checks that lklctl finds the stack of a pod, although lklrun has removed the
// parent of the run directories meanwhile.
func testLater(c *cluster) {
	c.kube("delete", "pod", "-n", "shop", "web", "--timeout=60s")
	kit.WaitFor(c.t, "the end of the stack", kit.Limit, func() bool {
		c.Run("lklctl", "rm", "--all") // the record of the run
		return kit.Run(c.t, kit.Limit, c.Command("test", "-e", "/run/lklrun")).Status != 0
	})
	c.apply(webPod("shop", "later", true, nil))
	c.kube("wait", "--for=condition=Ready", "-n", "shop", "pod/later", "--timeout=60s")
	if r := c.lklctl("-n", "shop", "later", "netstat", "-l"); r.Status != 0 || !strings.Contains(r.Stdout, "nginx(") {
		c.t.Errorf("kubectl lklctl does not find a later stack: %v", r)
	}
}
