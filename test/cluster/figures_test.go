// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

const (
	figurePods   = 50
	figuresLimit = 3 * time.Minute
)

// TestFigures prints the figures of docs/how-to/kubernetes.md, if LKLRUN_TEST_FIGURES is
// set: how long 50 pods take to start, with and without a stack, and the memory of their
// stacks.
func TestFigures(t *testing.T) {
	if os.Getenv("LKLRUN_TEST_FIGURES") == "" {
		t.Skip("LKLRUN_TEST_FIGURES is not set")
	}
	c := newCluster(t)
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
		began := time.Now()
		c.kube("scale", "deployment", f.name, fmt.Sprint("--replicas=", 1+figurePods))
		c.available(f.name, 1+figurePods)
		took := time.Since(began)
		fmt.Printf("%s a stack: %d pods in %.1f s, %.0f ms for each\n",
			f.name, figurePods, took.Seconds(), float64(took.Milliseconds())/figurePods)
		if f.annotations != nil {
			c.printMemory(1 + figurePods)
		}
		began = time.Now()
		c.kube("delete", "deployment", f.name)
		kit.WaitFor(t, "the end of the pods", figuresLimit, func() bool { return c.kube("get", "pods", "-o", "name") == "" })
		fmt.Printf("%s a stack: the end took %.1f s\n", f.name, time.Since(began).Seconds())
	}
}

func (c *cluster) available(name string, pods int) {
	c.t.Helper()
	kit.WaitFor(c.t, "the start of the pods", figuresLimit, func() bool {
		return c.get("deployment/"+name, ".status.availableReplicas") == fmt.Sprint(pods)
	})
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
	var names []string
	for name := range sizes {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Printf("%s: %.1f processes and %.1f MB of PSS for each pod\n", name, float64(counts[name])/float64(pods), float64(sizes[name])/1024/float64(pods))
	}
}
