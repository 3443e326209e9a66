// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/containerd"
)

const (
	figurePods   = 50
	sandboxes    = 20
	figuresLimit = "180s"
)

// TestFigures prints the figures of docs/how-to/kubernetes.md, if LKLRUN_TEST_FIGURES is
// set: how long pods take to start and end, with and without a stack, one at a time and 50 at
// once, and the memory of their stacks.
func TestFigures(t *testing.T) {
	if os.Getenv("LKLRUN_TEST_FIGURES") == "" {
		t.Skip("LKLRUN_TEST_FIGURES is not set")
	}
	cpu := cpuTime(t)
	c := newCluster(t)
	c.printSandboxes()
	for _, f := range []struct {
		name        string
		annotations object
	}{{"without", nil}, {"with", stacked}} {
		c.apply(object{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": f.name},
			"spec": object{"replicas": 1, "selector": object{"matchLabels": object{"app": f.name}},
				"template": template(f.name, f.annotations, server(), nil)},
		})
		c.available(f.name, 1) // the first pod also reads the image
		step := func(name string, args ...string) {
			began, used := time.Now(), cpu()
			c.kube(args...)
			if name == "start" {
				c.available(f.name, 1+figurePods)
			} else {
				c.kube("wait", "--for=delete", "pod", "-l", "app="+f.name, "--timeout="+figuresLimit)
			}
			fmt.Printf("%s a stack: %s of %d pods: %.1f s, and %.0f ms of processor time for each\n", f.name, name, figurePods,
				time.Since(began).Seconds(), float64((cpu()-used).Milliseconds())/figurePods)
		}
		step("start", "scale", "deployment", f.name, fmt.Sprint("--replicas=", 1+figurePods))
		if f.annotations != nil {
			c.printMemory(1 + figurePods)
		}
		step("end", "delete", "deployment", f.name)
	}
}

// printSandboxes prints how long containerd takes to start and end the sandbox of a pod.
func (c *cluster) printSandboxes() {
	took := map[string][]float64{}
	call := func(key, method string, request object) object {
		text, err := json.Marshal(request)
		kit.Must(c.t, err)
		began := time.Now()
		out := c.Run("cricall", containerd.Socket, method, string(text))
		took[key] = append(took[key], time.Since(began).Seconds()*1000)
		var reply object
		kit.Must(c.t, json.Unmarshal([]byte(out), &reply))
		return reply
	}
	// kubelet would remove sandboxes that it does not know.
	c.Run("sh", "-c", "kill -STOP $(cat /run/node/kubelet.pid)")
	defer c.Run("sh", "-c", "kill -CONT $(cat /run/node/kubelet.pid)")
	for i := range sandboxes {
		for name, annotations := range map[string]object{"without": nil, "with": {"lklrun.dev/stack": "bbr"}} {
			id := fmt.Sprint(name, i)
			pod := call(name+" a stack: start", "RunPodSandbox", object{"config": object{
				"metadata": object{"name": id, "uid": id, "namespace": "default"}, "annotations": annotations,
				"linux": object{"securityContext": object{"namespaceOptions": object{"pid": "CONTAINER"}}},
			}})
			call(name+" a stack: end", "StopPodSandbox", object{"podSandboxId": pod["podSandboxId"]})
			c.Run("cricall", containerd.Socket, "RemovePodSandbox", fmt.Sprintf(`{"podSandboxId": %q}`, pod["podSandboxId"]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(took)) {
		slices.Sort(took[key])
		fmt.Printf("%s of a sandbox: %.0f ms (median of %d)\n", key, took[key][sandboxes/2], sandboxes)
	}
}

func (c *cluster) available(name string, pods int) {
	c.t.Helper()
	c.kube("wait", fmt.Sprint("--for=jsonpath={.status.availableReplicas}=", pods), "deployment/"+name, "--timeout="+figuresLimit)
}

// cpuTime returns a function that returns the processor time of this process and all that
// it starts from now on, also of ended ones.
func cpuTime(t *testing.T) func() time.Duration {
	root := filepath.Join(kit.Dir(t), "cgroup")
	kit.Must(t, os.Mkdir(root, 0o755), unix.Mount("none", root, "cgroup2", 0, ""))
	group := filepath.Join(root, fmt.Sprintf("lklrun-test-%d", time.Now().UnixNano()))
	join := func(dir string) { kit.WriteFile(t, filepath.Join(dir, "cgroup.procs"), fmt.Sprint(os.Getpid())) }
	kit.Must(t, os.Mkdir(group, 0o755))
	t.Cleanup(func() {
		join(root)
		kit.WaitFor(t, "the removal of the cgroup", kit.Limit, func() bool { return os.Remove(group) == nil })
		kit.Must(t, unix.Unmount(root, 0))
	})
	join(group)
	return func() time.Duration {
		text := kit.ReadFile(t, filepath.Join(group, "cpu.stat"))
		var usec int64
		_, err := fmt.Sscanf(text, "usage_usec %d", &usec)
		kit.Must(t, err)
		return time.Duration(usec) * time.Microsecond
	}
}

// printMemory prints the proportional set size of the processes of all stacks.
func (c *cluster) printMemory(pods int) {
	const list = `for p in /proc/[0-9]*; do
	read -r name <$p/comm || continue
	case $name in lklrun* | lklhost*) ;; *) continue ;; esac
	echo "$name" $(grep '^Pss:' $p/smaps_rollup)
done 2>/dev/null`
	sizes, counts := map[string]int{}, map[string]int{}
	for _, line := range kit.Lines(c.Run("sh", "-c", list)) {
		var name string
		var kb int
		if _, err := fmt.Sscanf(strings.Replace(line, "Pss:", "", 1), "%s %d kB", &name, &kb); err != nil {
			continue // the process is about to end
		}
		if strings.HasPrefix(name, "lklhost") {
			name = "lklhost"
		}
		sizes[name] += kb
		counts[name]++
	}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		fmt.Printf("%s: %.1f processes and %.1f MiB of PSS for each pod\n", name, float64(counts[name])/float64(pods), float64(sizes[name])/1024/float64(pods))
	}
}
