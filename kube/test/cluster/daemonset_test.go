// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/kube/test/containerd"
	"github.com/lklrun/lklrun/test/kit"
)

const (
	installed = "/opt/lklrun"

	endLimit = 20 * time.Second
)

func manifests(sub ...string) string {
	return filepath.Join(append([]string{kit.Root(), "kube/packaging"}, sub...)...)
}

// A daemonset is a cluster on which nobody has installed lklrun.
type daemonset struct{ *cluster }

func newDaemonset(t *testing.T) daemonset {
	image := kit.Bin("lklrun-amd64.oci.tar")
	if _, err := os.Stat(image); err != nil {
		t.Fatalf("%v; `make image` makes the image", err)
	}
	c := newCluster(t)
	c.Import(containerd.NewImage(t))
	c.Import(webImage(t))
	text, err := os.ReadFile(image)
	kit.Must(t, err)
	c.Import(text)
	// The DaemonSet takes the place of the plug-in and the files that the node has.
	c.Run("sh", "-c", "rm /opt/nri/plugins/50-lklrun && kill $(pgrep -f '^/opt/nri/plugins/50-lklrun')")
	kit.WaitFor(t, "the end of the plug-in", endLimit, func() bool {
		return kit.Run(t, kit.Limit, c.Command("umount", installed)).Status == 0
	})
	c.Run("rmdir", installed)
	// All nodes of the machine have the same cgroups. A test that failed leaves them.
	c.Run("sh", "-c", "rmdir /sys/fs/cgroup/lklrun /sys/fs/cgroup/lklrun-pod 2>/dev/null || true")
	return daemonset{c}
}

// traces lists what lklrun could leave on the node.
func (d daemonset) traces() string {
	return d.Run("sh", "-c", `
find /opt /run/lklrun* /run/nri 2>/dev/null
ls -d /sys/fs/cgroup/lklrun 2>/dev/null
ip -o link | cut -d: -f2 | cut -d@ -f1 | grep -v cni0
for p in /proc/[0-9]*; do
	case $(tr '\0' ' ' <$p/cmdline) in *lklrun*|*lklhost*) echo process $(tr '\0' ' ' <$p/cmdline);; esac
done 2>/dev/null | grep -v containerd | sort`)
}

// rules lists the rules of the network plug-in for pods.
func (d daemonset) rules() string {
	d.t.Helper()
	return d.Run("sh", "-c", "nft list ruleset | grep -o 'CNI-[0-9a-f]*' || true")
}

// install applies the manifests in a folder, and waits until the plug-in is connected and
// the API server uses the policy.
func (d daemonset) install(folder string) {
	d.t.Helper()
	d.kube("apply", "-k", folder)
	d.rollout()
	kit.WaitFor(d.t, "the policy", kit.Limit, func() bool {
		r := d.kubectl("run", "policy", "--image", webName, "--annotations", "lklrun.dev/stack=default", "--dry-run=server", "-o", "jsonpath={.metadata.annotations}")
		return strings.Contains(r.Stdout, "required-plugins")
	})
}

func (d daemonset) rollout() {
	d.t.Helper()
	if r := d.kubectl("-n", "lklrun", "rollout", "status", "ds/lklrun", "--timeout=60s"); r.Status != 0 {
		d.t.Fatalf("%v\n%v\n%v", r, d.kubectl("-n", "lklrun", "logs", "ds/lklrun", "--all-containers"), d.kubectl("-n", "lklrun", "describe", "pods"))
	}
}

// lklctl runs lklctl in the pod of the node.
func (d daemonset) lklctl(args ...string) string {
	d.t.Helper()
	return d.kube(append([]string{"-n", "lklrun", "exec", "ds/lklrun", "--", "lklctl"}, args...)...)
}

// web starts a web server on a stack, if it can, and returns its address.
func (d daemonset) web(name string) {
	d.t.Helper()
	d.apply(object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "annotations": map[string]string{"lklrun.dev/stack": "default"}},
		"spec": object{"terminationGracePeriodSeconds": 1, "containers": []object{
			{"name": "web", "image": webName, "imagePullPolicy": "Never"},
		}},
	})
}

// ready waits for a pod, and returns its address.
func (d daemonset) ready(name string) string {
	d.t.Helper()
	d.kube("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	return d.kube("get", "pod/"+name, "-o", "jsonpath={.status.podIP}")
}

func (d daemonset) fetch(url string) string {
	d.t.Helper()
	return d.Run("curl", "-sS", "-m", "20", "--retry", "5", "--retry-connrefused", url)
}

// instances returns the names and the processes of the stacks.
func (d daemonset) instances() (names, hosts []string) {
	d.t.Helper()
	var all []struct {
		Name string      `json:"name"`
		PID  json.Number `json:"host_pid"`
	}
	kit.Must(d.t, json.Unmarshal([]byte(d.lklctl("list", "-o", "json")), &all))
	for _, i := range all {
		names, hosts = append(names, i.Name), append(hosts, i.PID.String())
	}
	return names, hosts
}

func (d daemonset) in(t *testing.T) daemonset { return daemonset{d.cluster.in(t)} }

// TestDaemonSet installs lklrun on a node by the manifests, and removes it.
func TestDaemonSet(t *testing.T) {
	d := newDaemonset(t)
	before := d.traces()
	d.kube("create", "namespace", "lklrun")
	d.kube("apply", "--dry-run=server", "-k", manifests())
	d.kube("delete", "namespace", "lklrun")
	d.install(manifests())
	for _, part := range []struct {
		name string
		test func(daemonset)
	}{
		{"pod", daemonset.testPod}, {"restart", daemonset.testRestart}, {"away", daemonset.testAway},
		{"containerd", daemonset.testContainerd}, {"metrics", daemonset.testMetrics}, {"remove", daemonset.testRemove},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(d.in(t)) }) {
			t.FailNow()
		}
	}
	if after := d.traces(); after != before {
		t.Errorf("traces remain on the node; before:\n%s\nafter:\n%s", before, after)
	}
}

// testPod checks that a pod has a stack, in a cgroup outside of the DaemonSet's pod.
func (d daemonset) testPod() {
	t := d.t
	d.web("web")
	if got := d.fetch("http://" + d.ready("web") + "/"); got != "hello\n" {
		t.Errorf("the node gets %q", got)
	}
	if got := d.kube("get", "pod/web", "-o", `jsonpath={.metadata.annotations.required-plugins\.noderesource\.dev/pod}`); got != "[lklrun]" {
		t.Errorf("the policy adds the annotation %q", got)
	}
	names, hosts := d.instances()
	if len(names) != 1 {
		t.Fatalf("want one stack: %q", names)
	}
	if got := d.lklctl("netstat", "-l"); !strings.Contains(got, "nginx") {
		t.Errorf("lklctl does not find the server: %s", got)
	}
	if got := d.Run("cat", "/proc/"+hosts[0]+"/cgroup"); !strings.Contains(got, "0::/lklrun\n") {
		t.Errorf("the cgroups of lklhost: %s", got)
	}
	// A pod without an annotation stays as it is.
	d.kube("run", "plain", "--image", webName, "--image-pull-policy", "Never")
	d.ready("plain")
	if got := d.kube("get", "pod/plain", "-o", "jsonpath={.metadata.annotations}"); got != "" {
		t.Errorf("a pod without a stack has the annotations %s", got)
	}
	if names, _ := d.instances(); len(names) != 1 {
		t.Errorf("a pod without an annotation has a stack: %q", names)
	}
	d.kube("delete", "pod/plain", "--now")
}

// testRestart checks that a connection outlives the pod of the DaemonSet: its deletion, and
// the end of all its processes at once.
func (d daemonset) testRestart() {
	t := d.t
	var c net.Conn
	addr := d.ready("web") + ":80"
	d.Net.Do(t, func() (err error) {
		c, err = net.Dial("tcp", addr)
		return err
	})
	defer c.Close()
	answers := bufio.NewReader(c)
	request := func(after string) {
		t.Helper()
		kit.Must(t, c.SetDeadline(time.Now().Add(kit.Limit)))
		_, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: pod\r\n\r\n"))
		kit.Must(t, err)
		r, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("%s: %v", after, err)
		}
		defer r.Body.Close()
		if text, err := io.ReadAll(r.Body); string(text) != "hello\n" || err != nil {
			t.Errorf("%s: %v, %q, %v", after, r, text, err)
		}
	}
	request("at first")
	_, before := d.instances()
	d.kube("-n", "lklrun", "delete", "pod", "-l", "app.kubernetes.io/name=lklrun")
	request("after the deletion")
	d.rollout()
	request("with a new pod")
	// kubelet and the OCI runtime end all processes in the pod's cgroup.
	d.Run("sh", "-ec", `mkdir /sys/fs/cgroup/lklrun-pod
		for p in $(pgrep -f '^/lklrun-oci node$|^/opt/lklrun/copy-[0-9]*/lklrun-oci node --serve'); do echo $p >/sys/fs/cgroup/lklrun-pod/cgroup.procs; done
		test "$(wc -l </sys/fs/cgroup/lklrun-pod/cgroup.procs)" = 2 || { cat /sys/fs/cgroup/lklrun-pod/cgroup.procs >&2; exit 1; }
		echo 1 >/sys/fs/cgroup/lklrun-pod/cgroup.kill`)
	request("after the end of the processes")
	kit.WaitFor(t, "the container to start again", readyLimit, func() bool {
		return d.kube("-n", "lklrun", "get", "pods", "-o", "jsonpath={.items[0].status.containerStatuses[0].restartCount}") == "1"
	})
	d.rollout()
	request("with a new container")
	d.Run("rmdir", "/sys/fs/cgroup/lklrun-pod")
	if _, after := d.instances(); len(after) != 1 || after[0] != before[0] {
		t.Errorf("lklhost was %q and is %q", before, after)
	}
	if got := d.Run("sh", "-c", "ls -d "+installed+"/copy-* | wc -l"); got != "1\n" {
		t.Errorf("%s copies of lklrun are on the node", got)
	}
}

// testAway checks the time without a DaemonSet's pod: no pod starts on the node's kernel
// instead of a stack, and the stack of a deleted pod ends.
func (d daemonset) testAway() {
	t := d.t
	d.web("other")
	d.ready("other")
	d.kube("-n", "lklrun", "patch", "ds/lklrun", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"no":"node"}}}}}`)
	d.kube("-n", "lklrun", "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=lklrun", "--timeout=60s")
	d.web("late")
	kit.WaitFor(t, "the reason", readyLimit, func() bool {
		return strings.Contains(d.kube("describe", "pod/late"), `required plugin "lklrun" not present`)
	})
	// The author of a pod cannot do without the annotation by an empty value.
	if got := d.kube("get", "pod/late", "-o", "jsonpath={.status.containerStatuses[0].started}"); got != "false" {
		t.Errorf("the container runs without a stack: started %s", got)
	}
	d.kube("delete", "pod/other", "--now")
	kit.WaitFor(t, "the end of the stack", endLimit, func() bool {
		return d.Run("sh", "-c", "ls /run/lklrun | wc -l; ls /run/lklrun-oci | wc -l; pgrep -c lklhost || true") ==
			d.Run("sh", "-c", "echo 1; echo 1; pgrep -c -f 'lklhost --run /run/lklrun/'$(ls /run/lklrun)")
	})
	d.kube("-n", "lklrun", "patch", "ds/lklrun", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"no":null}}}}}`)
	d.rollout()
	d.ready("late") // kubelet tries again
	d.kube("delete", "pod/late", "--now")
	if names, _ := d.instances(); len(names) != 1 {
		t.Errorf("want the stack of the first pod: %q", names)
	}
}

// testContainerd checks that the plug-in connects again to a new containerd.
func (d daemonset) testContainerd() {
	pod := d.kube("-n", "lklrun", "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}{.items[*].status.containerStatuses[*].restartCount}")
	d.StopContainerd()
	kit.WaitFor(d.t, "the plug-in to notice", endLimit, func() bool {
		return kit.Run(d.t, kit.Limit, d.Command("test", "-e", installed+"/bin/connected")).Status != 0
	})
	d.StartContainerd()
	kit.WaitFor(d.t, "the plug-in to connect", endLimit, func() bool {
		return kit.Run(d.t, kit.Limit, d.Command("test", "-e", installed+"/bin/connected")).Status == 0
	})
	d.rollout()
	d.web("after")
	d.ready("after")
	if names, _ := d.instances(); len(names) != 2 {
		d.t.Errorf("want two stacks: %q", names)
	}
	d.kube("delete", "pod/after", "--now")
	if now := d.kube("-n", "lklrun", "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}{.items[*].status.containerStatuses[*].restartCount}"); now != pod {
		d.t.Errorf("the pod was %s and is %s", pod, now)
	}
}

// testMetrics checks that Prometheus finds the counters of the node's stacks.
func (d daemonset) testMetrics() {
	t := d.t
	const token = "0123456789abcdef-token"
	d.kube("-n", "lklrun", "create", "secret", "generic", "lklrun-metrics", "--from-literal=token="+token)
	d.install(d.overlay("metrics", "resources: [MANIFESTS]\ncomponents: [MANIFESTS/metrics]\n"))
	addr := d.kube("-n", "lklrun", "get", "pods", "-o", "jsonpath={.items[0].status.podIP}")
	names, _ := d.instances()
	if got := d.fetch("http://" + addr + ":9100/" + token + "/metrics"); !strings.Contains(got, `instance="`+names[0]+`"`) || !strings.Contains(got, "lklrun_TcpInSegs_total") {
		t.Errorf("no counters of the stack: %.300s", got)
	}
	if got := d.fetch("http://" + addr + ":9100/another-token-of-16/metrics"); !strings.Contains(got, "no valid token") {
		t.Errorf("want an error with a wrong token: %.300s", got)
	}
}

// overlay makes a kustomization in a folder of the node, and returns the folder.
func (d daemonset) overlay(name, text string) string {
	d.t.Helper()
	folder := files + "overlay-" + name
	d.Run("mkdir", "-p", folder)
	base, err := filepath.Rel(folder, manifests())
	kit.Must(d.t, err)
	d.file(folder+"/kustomization.yaml", strings.ReplaceAll(text, "MANIFESTS", base))
	return folder
}

// testRemove checks that a running pod keeps its stack until it is deleted, and that a
// removal without pods leaves nothing.
func (d daemonset) testRemove() {
	t := d.t
	addr := d.ready("web")
	d.kube("delete", "-k", manifests())
	if got := d.Run("sh", "-c", "ls -d "+installed+" 2>&1 || true"); !strings.Contains(got, "No such file") {
		t.Errorf("files remain: %s", got)
	}
	if got := d.fetch("http://" + addr + "/"); got != "hello\n" {
		t.Errorf("the node gets %q from a pod that is older than the removal", got)
	}
	d.kube("delete", "pod/web", "--now")
	kit.WaitFor(t, "the end of the stack", endLimit, func() bool {
		return d.Run("sh", "-c", "ls /run/lklrun; pgrep lklhost || true") == ""
	})
	before := d.rules() // those of pods that were deleted without the plug-in remain
	d.install(manifests())
	d.web("web")
	d.ready("web")
	d.kube("delete", "pod/web", "--now")
	d.kube("delete", "-k", manifests())
	if after := d.rules(); after != before {
		t.Errorf("rules of the pod remain; before:\n%s\nafter:\n%s", before, after)
	}
}

// TestDaemonSetRights checks that the plug-in does not serve a pod if the container lacks
// one of its rights, and reports why. A pod never uses the node's kernel instead.
func TestDaemonSetRights(t *testing.T) {
	d := newDaemonset(t)
	d.install(manifests())
	var all []string
	kit.Must(t, json.Unmarshal([]byte(d.kube("-n", "lklrun", "get", "ds/lklrun", "-o",
		"jsonpath={.spec.template.spec.containers[0].securityContext.capabilities.add}")), &all))
	patch := func(path string, value any) {
		t.Helper()
		text, err := json.Marshal([]object{{"op": "replace", "path": "/spec/template/spec/" + path, "value": value}})
		kit.Must(t, err)
		d.kube("-n", "lklrun", "patch", "ds/lklrun", "--type=json", "-p", string(text))
		kit.WaitFor(t, "the controller to see the change", readyLimit, func() bool {
			seen := strings.Fields(d.kube("-n", "lklrun", "get", "ds/lklrun", "-o", "jsonpath={.metadata.generation} {.status.observedGeneration}"))
			return len(seen) == 2 && seen[0] == seen[1]
		})
		d.kube("-n", "lklrun", "delete", "pod", "-l", "app.kubernetes.io/name=lklrun")
	}
	check := func(right, want string) {
		t.Helper()
		d.web("web")
		said := ""
		if !kit.Within(readyLimit, func() bool {
			said = d.kubectl("-n", "lklrun", "logs", "-l", "app.kubernetes.io/name=lklrun").Stdout + d.kube("describe", "pod/web")
			return strings.Contains(said, want)
		}) {
			t.Errorf("without %s, want %q: %s", right, want, said)
		}
		if got := d.kube("get", "pod/web", "-o", "jsonpath={.status.containerStatuses[0].started}"); got == "true" {
			t.Errorf("without %s, the pod runs", right)
		}
		d.kube("delete", "pod/web", "--now")
	}
	const enter = "entering the namespaces of PID 1: operation not permitted"
	reasons := map[string]string{
		"DAC_OVERRIDE": "creating the cgroup of the stacks: mkdir /sys/fs/cgroup/lklrun: permission denied",
		"NET_ADMIN":    "removing address",
		"NET_RAW":      "packet sockets require CAP_NET_RAW",
		"SYS_ADMIN":    enter, "SYS_CHROOT": enter, "SYS_PTRACE": enter,
	}
	if len(all) != len(reasons)+1 {
		t.Errorf("the container has the capabilities %q", all)
	}
	for i, right := range all {
		if right == "KILL" {
			continue // only for pods whose lklhost has died
		}
		patch("containers/0/securityContext/capabilities/add", slices.Concat(all[:i], all[i+1:]))
		check(right, reasons[right])
	}
	patch("containers/0/securityContext/capabilities/add", all)
	patch("hostPID", false)
	check("hostPID", "the pod needs hostPID: true")
	patch("hostPID", true)
	d.rollout()
	d.web("web")
	d.ready("web")
	d.kube("delete", "pod/web", "--now")
	d.kube("delete", "-k", manifests())
}

// TestChart checks that the Helm chart has the same objects as the manifests.
func TestChart(t *testing.T) {
	kit.Need(t, tool("helm"), tool("kubectl"))
	dir := kit.Dir(t)
	helm := func(args ...string) kit.Result {
		return kit.Run(t, kit.Limit, kit.Host.Command(append([]string{tool("helm")}, args...)...))
	}
	if r := helm("lint", "--strict", manifests("chart")); r.Status != 0 {
		t.Errorf("helm lint: %v", r)
	}
	build := func(name, kustomization string) string {
		folder := filepath.Join(dir, name)
		kit.Must(t, os.MkdirAll(folder, 0o755))
		base, err := filepath.Rel(folder, manifests())
		kit.Must(t, err)
		kustomization += "sortOptions: {order: legacy}\n"
		kit.WriteFile(t, filepath.Join(folder, "kustomization.yaml"), strings.ReplaceAll(kustomization, "MANIFESTS", base))
		return kit.Host.Run(t, tool("kubectl"), "kustomize", folder)
	}
	for _, c := range []struct {
		name, kustomization string
		values              []string
	}{
		{"default", "resources: [MANIFESTS]\n", nil},
		{"metrics", "resources: [MANIFESTS]\ncomponents: [MANIFESTS/metrics]\n", []string{"metrics.tokenSecret=lklrun-metrics"}},
		{"image", "resources: [MANIFESTS]\nimages: [{name: localhost/lklrun, newName: example.com/lklrun, newTag: v1}]\n",
			[]string{"image.repository=example.com/lklrun", "image.tag=v1"}},
	} {
		args := []string{"template", "lklrun", manifests("chart")}
		for _, v := range c.values {
			args = append(args, "--set", v)
		}
		r := helm(args...)
		if r.Status != 0 {
			t.Errorf("%s: %v", c.name, r)
			continue
		}
		folder := filepath.Join(dir, c.name+"-chart")
		kit.Must(t, os.MkdirAll(folder, 0o755))
		kit.WriteFile(t, filepath.Join(folder, "all.yaml"), r.Stdout)
		want, got := build(c.name, c.kustomization), build(c.name+"-chart", "resources: [all.yaml]\n")
		if want != got || len(kit.Lines(want)) < 100 {
			t.Errorf("%s: the chart differs; kustomize:\n%s\nchart:\n%s", c.name, want, got)
		}
	}
	for value, want := range map[string]string{
		"stacks=x": "does not match", "metrics.port=0": "metrics/port", "imag=x": "additional properties 'imag' not allowed",
	} {
		if r := helm("template", "lklrun", manifests("chart"), "--set", value); r.Status == 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: want an error with %q: %v", value, want, r)
		}
	}
}
