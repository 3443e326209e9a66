// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/kube/test/containerd"
	"github.com/lklrun/lklrun/test/kit"
)

const (
	webName = "localhost/nginx:1"
	hello   = "hello\n"
)

const webConfig = `user www-data;
worker_processes 1;
pid /tmp/nginx.pid;
error_log /dev/stderr;
events { }
http { access_log /dev/stdout; server { listen 80; root /www; } }
`

// webImage returns an image of nginx, with tools for the tests.
func webImage(t *testing.T) []byte {
	return containerd.ProgramImage(t, webName, []string{"/usr/sbin/nginx", "-g", "daemon off;"}, []string{"nginx", "curl", "ss"},
		containerd.File{Name: "etc/nginx/nginx.conf", Kind: tar.TypeReg, Text: webConfig},
		containerd.File{Name: "www/index.html", Kind: tar.TypeReg, Text: hello},
		containerd.File{Name: "var/lib/nginx/", Kind: tar.TypeDir}, containerd.File{Name: "var/log/nginx/", Kind: tar.TypeDir},
	)
}

// TestCluster runs pods on stacks by kubelet. It checks that nothing of the pods is left on
// the node, and nothing of the node on the machine.
func TestCluster(t *testing.T) {
	kit.Need(t)
	before, sysctls := kit.Take(t), machineSysctls(t)
	t.Cleanup(func() { // after the end of the node
		before.Settles(readyLimit)
		if now := machineSysctls(t); now != sysctls {
			t.Errorf("kubelet has changed sysctls of the machine to %s, before: %s", now, sysctls)
		}
	})
	c := newCluster(t)
	cgroups := c.Run("find", "/sys/fs/cgroup", "-type", "d")
	c.apply(object{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": object{"name": "lklrun"}, "handler": "lklrun"})
	for _, part := range []struct {
		name string
		test func(*cluster)
	}{
		{"plug-in", func(c *cluster) { testServer(c, "plugin", "") }},
		{"runtime", func(c *cluster) { testServer(c, "runtime", "lklrun") }},
		{"dead", testDead}, {"unplugged", testUnplugged}, {"forward", testForward},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(c.in(t)) }) {
			t.Log(c.Errors())
		}
	}
	if t.Failed() {
		return
	}
	c.kube("delete", "deployment,service,pod", "-l", "test", "--timeout=60s")
	var left string
	if !kit.Within(readyLimit, func() bool {
		left = c.Run("sh", "-c", "ps ax -o args | grep -E '[l]klhost|[l]klrun --detached|[d]efunct'; ip -o link show type veth | grep -v "+
			wire+"; ls -d /run/lklrun-oci /run/lklrun/* /run/netns/cni-* 2>/dev/null; iptables-save | grep -E 'CNI-[0-9a-f]'; :")
		return left == ""
	}) {
		t.Errorf("processes, devices, files or rules of the pods are left: %s", left)
	}
	for _, dir := range kit.Lines(c.Run("find", "/sys/fs/cgroup", "-type", "d")) {
		if !strings.Contains(cgroups, dir+"\n") && (strings.Contains(dir, "kube") || strings.Contains(dir, "k8s")) {
			t.Errorf("a cgroup is left: %s", dir)
		}
	}
}

// machineSysctls returns the sysctls that kubelet sets.
func machineSysctls(t *testing.T) (all string) {
	for _, name := range strings.Fields(sysctls) {
		all += kit.ReadFile(t, "/proc/sys/"+name)
	}
	return all
}

// stacked are the annotations of a pod on the stack bbr.
var stacked = object{"lklrun.dev/stack": "bbr", "required-plugins.noderesource.dev/pod": "[lklrun]"}

// template returns the metadata and specification of a pod with a container.
func template(name string, annotations, container, spec object) object {
	c := object{"name": "c", "image": webName, "imagePullPolicy": "Never"}
	for k, v := range container {
		c[k] = v
	}
	s := object{"containers": []object{c}, "terminationGracePeriodSeconds": 1}
	for k, v := range spec {
		s[k] = v
	}
	return object{"metadata": object{"name": name, "labels": object{"app": name, "test": ""}, "annotations": annotations}, "spec": s}
}

// server is a container with nginx and probes.
func server(probes ...string) object {
	c := object{"ports": []object{{"containerPort": 80}}}
	for _, p := range probes {
		c[p] = object{"httpGet": object{"path": "/", "port": 80}, "periodSeconds": 1, "timeoutSeconds": 2, "failureThreshold": 2}
	}
	return c
}

// sleeper is a container that only waits for commands.
var sleeper = object{"command": []string{"sleep", "10000"}}

// pod creates a pod, and waits until it is ready.
func (c *cluster) pod(name string, annotations, container, spec object) {
	c.t.Helper()
	o := template(name, annotations, container, spec)
	o["apiVersion"], o["kind"] = "v1", "Pod"
	c.apply(o)
	c.kube("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
}

// get returns a field of an object.
func (c *cluster) get(what, path string) string {
	c.t.Helper()
	return c.kube(append([]string{"get", "-o", "jsonpath={" + path + "}"}, strings.Fields(what)...)...)
}

// exec runs a command in a pod.
func (c *cluster) exec(pod string, args ...string) string {
	c.t.Helper()
	return c.kube(append([]string{"exec", pod, "--"}, args...)...)
}

// fetch returns a page that a pod gets.
func (c *cluster) fetch(pod, url string) string {
	c.t.Helper()
	return c.exec(pod, "curl", "-sS", "-m", "20", "--retry", "5", "--retry-connrefused", url)
}

// instance returns the name of a pod's stack.
func (c *cluster) instance(pod string) string {
	c.t.Helper()
	var list struct{ Items []object }
	const ready = `{"filter": {"state": {"state": "SANDBOX_READY"}, "labelSelector": {"io.kubernetes.pod.name": %q}}}`
	text := c.Run("cricall", containerd.Socket, "ListPodSandbox", fmt.Sprintf(ready, pod))
	kit.Must(c.t, json.Unmarshal([]byte(text), &list))
	if len(list.Items) != 1 {
		c.t.Fatalf("pod %s has %d sandboxes: %v", pod, len(list.Items), list.Items)
	}
	return list.Items[0]["id"].(string)[:12]
}

// killStack kills the lklhost of a pod.
func (c *cluster) killStack(pod string) {
	c.t.Helper()
	name := c.instance(pod)
	var list []struct {
		Name string `json:"name"`
		PID  int    `json:"host_pid"`
	}
	kit.Must(c.t, json.Unmarshal([]byte(c.Run("lklctl", "-o", "json", "list")), &list))
	for _, i := range list {
		if i.Name == name {
			c.Run("kill", "-KILL", strconv.Itoa(i.PID))
			return
		}
	}
	c.t.Fatalf("pod %s has no stack %s: %v", pod, name, list)
}

// testServer checks a Deployment and a Service of nginx on a stack: probes, clients on the
// node, in pods and outside, and commands of kubectl.
func testServer(c *cluster, name, class string) {
	t := c.t
	annotations, spec := stacked, object{}
	if class != "" {
		annotations, spec = object{"lklrun.dev/stack": "bbr"}, object{"runtimeClassName": class}
	}
	web := server("livenessProbe", "readinessProbe")
	web["ports"] = []object{{"containerPort": 80, "hostPort": 8080}}
	selector := object{"app": name}
	c.apply(object{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": name, "labels": object{"test": ""}},
		"spec": object{"selector": object{"matchLabels": selector}, "template": template(name, annotations, web, spec)},
	})
	c.apply(object{
		"apiVersion": "v1", "kind": "Service", "metadata": object{"name": name, "labels": object{"test": ""}},
		"spec": object{"selector": selector, "ports": []object{{"port": 81, "targetPort": 80}}},
	})
	c.kube("wait", "--for=condition=Available", "deployment/"+name, "--timeout=60s")
	pod := c.get("pod -l app="+name, ".items[0].metadata.name")
	service := "http://" + net.JoinHostPort(c.get("service/"+name, ".spec.clusterIP"), "81") + "/"

	// A connection from outside that sends nothing remains.
	var outside net.Conn
	c.client.Do(t, func() (err error) {
		outside, err = net.DialTimeout("tcp", nodeAddr+":8080", kit.Limit)
		return err
	})
	defer outside.Close()
	if got := c.exec(pod, "ss", "-tinH", "sport", "=", ":80"); !strings.Contains(got, " bbr ") {
		t.Errorf("a connection to the pod does not use bbr: %s", got)
	}
	if got := c.client.Run(t, "curl", "-sS", "-m", "20", "http://"+nodeAddr+":8080/"); got != hello {
		t.Errorf("a client outside gets %q from the pod's port on the node", got)
	}

	c.pod(name+"-on", annotations, sleeper, spec)
	c.pod(name+"-off", nil, sleeper, nil)
	for _, from := range []string{name + "-on", name + "-off", pod} {
		if got := c.fetch(from, service); got != hello {
			t.Errorf("pod %s gets %q from the Service", from, got)
		}
	}
	// Also the API server's own Service.
	if got := c.exec(name+"-on", "curl", "-sSk", "-m", "20", "https://10.96.0.1/livez"); got != "ok" {
		t.Errorf("a pod on a stack gets %q from the API server", got)
	}
	for on, want := range map[string]bool{name + "-on": true, name + "-off": false} {
		list := c.Run("lklctl", "list")
		if got := strings.Contains(list, c.instance(on)); got != want {
			t.Errorf("pod %s has a stack: %v, want %v: %s", on, got, want, list)
		}
	}

	if got := c.kube("logs", pod); !strings.Contains(got, "kube-probe/") || !strings.Contains(got, "curl/") {
		t.Errorf("the log lacks requests of probes or clients: %s", got)
	}
	if got := c.get("pod/"+pod, ".status.containerStatuses[0].restartCount"); got != "0" {
		t.Errorf("the container has restarted %s times: %s", got, c.events())
	}
	outside.Close()
	c.kube("delete", "deployment,service,pod", "-l", "test", "--timeout=60s") // the next test has the same port
}

// testDead kills the lklhost of pods. The plug-in ends their containers, and kubelet acts
// by the policy of the pod: a restarted container has a new stack with the same address.
func testDead(c *cluster) {
	t := c.t
	c.pod("always", stacked, server("readinessProbe"), nil)
	c.pod("never", stacked, server("readinessProbe"), object{"restartPolicy": "Never"})
	addr := c.get("pod/always", ".status.podIP")
	c.killStack("always")
	c.killStack("never")
	c.kube("wait", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/always", "--timeout=60s")
	c.kube("wait", "--for=condition=Ready", "pod/always", "--timeout=60s")
	c.kube("wait", "--for=jsonpath={.status.phase}=Failed", "pod/never", "--timeout=60s")
	for pod, path := range map[string]string{"always": ".lastState", "never": ".state"} {
		got := c.get("pod/"+pod, ".status.containerStatuses[0]"+path+".terminated.message")
		if want := "lklrun: the network stack of the pod has ended: "; !strings.HasPrefix(got, want) || !strings.Contains(got, "killed") {
			t.Errorf("the status of pod %s does not say why: %q, want %q and more", pod, got, want)
		}
	}
	c.serves("always", addr)
	if r := kit.Run(t, kit.Limit, c.Command("curl", "-sS", "-m", "2", "http://"+c.get("pod/never", ".status.podIP")+"/")); r.Status == 0 {
		t.Errorf("a pod answers after its end: %v", r)
	}
}

// serves checks that a pod serves on its stack, and has this address.
func (c *cluster) serves(pod, addr string) {
	c.t.Helper()
	if got := c.get("pod/"+pod, ".status.podIP"); got != addr {
		c.t.Errorf("pod %s has address %s, want %s", pod, got, addr)
	}
	if got := c.Run("curl", "-sS", "-m", "20", "http://"+addr+"/"); got != hello {
		c.t.Errorf("the node gets %q from pod %s", got, pod)
	}
	if got := c.Run("lklctl", "-n", c.instance(pod), "exec", "--", "ss", "-tlnH", "sport", "=", ":80"); !strings.Contains(got, "LISTEN") {
		c.t.Errorf("pod %s does not listen on its stack: %s", pod, got)
	}
}

// testUnplugged kills the lklhost of pods while the plug-in does not run. A liveness probe
// restarts the container, but a pod without one remains without network. Stacks continue
// while containerd does not run. The plug-in that a new containerd starts ends the
// containers that have no stack any more.
func testUnplugged(c *cluster) {
	t := c.t
	notes, class := object{"lklrun.dev/stack": "bbr"}, object{"runtimeClassName": "lklrun"}
	c.Run("sh", "-c", "kill -KILL $(pgrep -f '^/opt/nri/plugins/50-lklrun')")
	c.pod("lively", notes, server("livenessProbe", "readinessProbe"), class)
	c.pod("idle", notes, server("readinessProbe"), class)
	addr, idle := c.get("pod/lively", ".status.podIP"), c.get("pod/idle", ".status.podIP")
	c.killStack("lively")
	c.killStack("idle")
	c.kube("wait", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/lively", "--timeout=60s")
	c.kube("wait", "--for=condition=Ready", "pod/lively", "--timeout=60s")
	c.serves("lively", addr)
	if got := c.kube("events", "--for", "pod/lively"); !strings.Contains(got, "Liveness probe failed") {
		t.Errorf("the events lack the failure: %s", got)
	}
	c.kube("wait", "--for=condition=Ready=false", "pod/idle", "--timeout=60s")
	if r := kit.Run(t, kit.Limit, c.Command("curl", "-sS", "-m", "2", "http://"+idle+"/")); r.Status == 0 {
		t.Errorf("a pod without a stack answers: %v", r)
	}
	if r := c.kubectl("exec", "idle", "--", "true"); r.Status == 0 {
		t.Errorf("a command starts in a pod without a stack: %v", r)
	}

	c.StopContainerd()
	if got := c.Run("curl", "-sS", "-m", "20", "http://"+addr+"/"); got != hello {
		t.Errorf("the node gets %q while containerd does not run", got)
	}
	c.StartContainerd()
	c.kube("wait", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/idle", "--timeout=60s")
	c.kube("wait", "--for=condition=Ready", "pod/idle", "pod/lively", "node/node", "--timeout=60s")
	c.serves("idle", idle)
	c.serves("lively", addr)
	if got := c.get("pod/lively", ".status.containerStatuses[0].restartCount"); got != "1" {
		t.Errorf("a pod has restarted with containerd: %s", c.events())
	}
	c.pod("young", stacked, server("readinessProbe"), nil)
	c.serves("young", c.get("pod/young", ".status.podIP"))
}

// testForward checks kubectl port-forward, whose connections come from the loopback
// interface of the pod's network namespace.
func testForward(c *cluster) {
	c.pod("forwarded", stacked, server("readinessProbe"), nil)
	forward := c.Node.Start("port-forward", "kubectl", "--kubeconfig", admin, "port-forward", "pod/forwarded", "18080:80")
	defer forward.Stop(c.t)
	url := []string{"curl", "-sS", "-m", "5", "http://127.0.0.1:18080/"}
	forward.Until(func() bool { return kit.Run(c.t, kit.Limit, c.Command(url...)).Status != 7 }) // kubectl does not listen yet
	for range 2 {
		if got := c.Run(url...); got != hello {
			c.t.Errorf("a client of kubectl port-forward gets %q", got)
		}
	}
}
