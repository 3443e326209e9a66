// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/test/kit"
)

// standIn is a kubectl whose cluster has pods in files. It executes lklrun on this machine,
// which is the node.
const standIn = `#!/bin/sh
echo "$*" >>"$KUBE/log"
case "$*" in
*" get "*"-- pods"|"get "*"-- pods") cat "$KUBE/agents" ;;
*"get "*"-- pod "*)
	for name; do :; done
	cat "$KUBE/pod-$name" 2>/dev/null || { echo "Error from server (NotFound): pods \"$name\" not found" >&2; exit 1; }
	;;
*"exec "*)
	case "$*" in *agent-lost*)
		echo "error: unable to upgrade connection" >&2; exit 1 ;;
	*agent-empty*)
		echo 'error: exec failed: executable file lklrun not found in $PATH' >&2; exit 1 ;;
	esac
	until [ "$1" = --node ]; do shift; done
	shift
	"$LKLRUN" device "$@"
	status=$?
	[ $status = 0 ] || echo "command terminated with exit code $status" >&2
	exit $status ;;
*)
	echo "error: context \"none\" does not exist" >&2; exit 1 ;;
esac
`

// kubePod returns a pod as kubectl prints it.
func kubePod(namespace, name, node string, ready bool) map[string]any {
	phase, condition := "Running", "True"
	if node == "" {
		phase = "Pending"
	}
	if !ready {
		condition = "False"
	}
	return map[string]any{
		"metadata": map[string]any{"namespace": namespace, "name": name}, "spec": map[string]any{"nodeName": node},
		"status": map[string]any{"phase": phase, "conditions": []any{map[string]any{"type": "Ready", "status": condition}}},
	}
}

// newCluster installs the stand-in for kubectl, and returns its folder.
func newCluster(t *testing.T, pods []map[string]any, agents ...map[string]any) string {
	t.Helper()
	kit.Need(t, kit.Bin("lklrun"))
	dir := kit.Dir(t)
	write := func(name string, v any) {
		text, err := json.Marshal(v)
		kit.Must(t, err, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	for _, p := range pods {
		write(fmt.Sprint("pod-", p["metadata"].(map[string]any)["name"]), p)
	}
	write("agents", map[string]any{"items": agents})
	kit.Must(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(standIn), 0o700)) //nolint:gosec // a program
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("KUBE", dir)
	t.Setenv("LKLRUN", kit.Bin("lklrun"))
	return dir
}

// kubectl lklctl runs a verb on the stack of a pod.
func TestKubectl(t *testing.T) {
	podOf(t, "67fe26081cc7", "shop", "web", time.Minute)
	podOf(t, "bbbbbbbbbbbb", "shop", "db", time.Minute)
	dir := newCluster(t, []map[string]any{kubePod("shop", "web", "w1", true)}, kubePod("agents", "agent-1", "w1", true))
	if text := ok(t, "kubectl", "-n", "shop", "--context", "lab", "--agent-namespace", "agents", "web", "counters", "-o", "prom"); !strings.Contains(text, `{instance="67fe26081cc7",namespace="shop",pod="web"} `) || strings.Contains(text, "bbbbbbbbbbbb") {
		t.Error(text)
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	kit.Must(t, err)
	for n, want := range []string{
		"--context=lab get --output=json --namespace=shop -- pod web",
		"--context=lab get --output=json --namespace=agents --selector=app.kubernetes.io/name=lklrun --field-selector=spec.nodeName=w1 -- pods",
		"--context=lab exec --quiet --namespace=agents --stdin agent-1 -- lklrun device --node list --follow",
		"--context=lab exec --quiet --namespace=agents --stdin agent-1 -- lklrun device --node connect --with ",
	} {
		if line := strings.Split(string(log), "\n")[n]; !strings.HasPrefix(line, want) {
			t.Errorf("kubectl is called with %s; want %s", line, want)
		}
	}
	// The namespace is that of the context, and the name may be that of kubectl get -o name.
	if all := decode[[]instance.Info](t, "kubectl", "pod/web", "list"); len(all) != 2 || all[0].Device != "node:w1" {
		t.Errorf("%+v", all)
	}
	// The flags after the pod are those of the verb.
	ok(t, "kubectl", "web", "cat", "/proc/version")
	refused(t, 1, []string{"kubectl", "web", "netstat", "-n", "--fail-empty"}, `"67fe26081cc7" has no matching sockets`)
}

// Each failure is one line with a remedy, and nothing happens to another instance.
func TestKubectlRefused(t *testing.T) {
	podOf(t, "67fe26081cc7", "shop", "web", time.Minute)
	pods := []map[string]any{
		kubePod("shop", "web", "w1", true), kubePod("shop", "plain", "w1", true), kubePod("shop", "late", "", false),
		kubePod("shop", "alone", "w2", true), kubePod("shop", "slow", "w3", true), kubePod("shop", "lost", "w4", true),
		kubePod("shop", "empty", "w5", true), kubePod("-x", "--all", "w1", true),
	}
	newCluster(t, pods, kubePod("lklrun", "agent-1", "w1", true), kubePod("lklrun", "agent-3", "w3", false),
		kubePod("lklrun", "agent-lost", "w4", true), kubePod("lklrun", "agent-empty", "w5", true))
	for _, c := range []struct {
		status int
		args   string
		want   string
	}{
		{3, "none netstat", "pod none: not found; kubectl get pods lists the pods of this namespace; -n NAMESPACE selects another one"},
		{3, "-n shop none netstat", "pod none: not found; kubectl get pods --namespace shop lists the pods"},
		{3, "late netstat", "pod shop/late is not on a node yet (Pending); see kubectl describe pod --namespace shop late"},
		{2, "alone netstat", "node:w2: namespace lklrun has no pod with the label app.kubernetes.io/name=lklrun there; install the DaemonSet of lklrun, or use --agent-namespace"},
		{2, "slow netstat", "node:w3: pod lklrun/agent-3, which contains lklrun, is not ready (Running); see kubectl describe pod --namespace lklrun agent-3"},
		{2, "empty netstat", "node:w5: pod lklrun/agent-empty contains no program lklrun; use the image of lklrun"},
		{125, "lost netstat", "node:w4: the connection was lost: unable to upgrade connection"},
		{3, "plain netstat", "pod shop/plain has no running stack (looked on node:w1); pods with a stack: shop/web"},
		{3, "plain stop", "pod shop/plain has no running stack (looked on node:w1); pods with a stack: shop/web"},
		{2, "web", `pod "web": no VERB given; see lklctl kubectl --help`},
		{2, "web none", `unknown verb "none"`},
		{2, "web netstat --device adb", "--device adb: conflicts with a pod of Kubernetes"},
		{2, "web logs", "--device node:w1: logs shows only runs of this machine"},
		{2, "web app run org.example", "node:w1: expected a single device"},
		{2, "deployment/web netstat", `"deployment/web" is not a pod; expected POD or pod/POD`},
		{2, "shop/web netstat", `"shop/web" is not a pod`},
		{2, "--none web netstat", "unknown flag: --none; see lklctl kubectl --help"},
	} {
		refused(t, c.status, append([]string{"kubectl"}, strings.Fields(c.args)...), c.want)
	}
	// kubectl does not take the name for an option, and lklctl does not believe the answer.
	refused(t, 2, []string{"kubectl", "--", "--all", "netstat"}, `pod "-x/--all": expected NAMESPACE/POD`)
	refused(t, 2, []string{"-n", "web", "kubectl", "web", "netstat"}, "give the namespace of the pod after the word kubectl")
	if text := ok(t, "list"); !strings.Contains(text, "67fe26081cc7") {
		t.Errorf("the instance has ended: %s", text)
	}
	t.Setenv("PATH", "/nonexistent")
	refused(t, 2, []string{"kubectl", "web", "netstat"}, "kubectl: the program is not installed on this machine; install kubectl")
}

// The list contains the stacks of all nodes that answer.
func TestKubectlList(t *testing.T) {
	podOf(t, "67fe26081cc7", "shop", "web", time.Minute)
	newCluster(t, nil, kubePod("lklrun", "agent-1", "w1", true), kubePod("lklrun", "agent-2", "w2", true))
	text := ok(t, "kubectl", "list")
	for _, want := range []string{"DEVICE", "node:w1  67fe26081cc7", "node:w2  67fe26081cc7", "pod shop/web\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	newCluster(t, nil, kubePod("lklrun", "agent-1", "w1", true), kubePod("lklrun", "agent-2", "w2", false), kubePod("lklrun", "agent-lost", "w3", true))
	r := lklctl(t, "kubectl", "list", "-o", "json")
	var all []instance.Info
	if err := json.Unmarshal([]byte(r.out), &all); err != nil || len(all) != 1 || all[0].Device != "node:w1" || all[0].Pod.String() != "shop/web" || r.status != 125 {
		t.Errorf("%+v, %v", r, err)
	}
	if want := "lklctl: node:w2: pod lklrun/agent-2, which contains lklrun, is not ready (Running); see kubectl describe pod --namespace lklrun agent-2\nlklctl: node:w3: the connection was lost: unable to upgrade connection\n"; r.errors != want {
		t.Errorf("%q, want %q", r.errors, want)
	}
	newCluster(t, nil)
	refused(t, 2, []string{"kubectl", "list"}, "namespace lklrun has no pod of lklrun; install its DaemonSet, or use --agent-namespace")
}
