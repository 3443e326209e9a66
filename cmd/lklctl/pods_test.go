// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/instance"
)

// podOf makes an instance serve a pod.
func podOf(t *testing.T, name, namespace, pod string, age time.Duration) {
	t.Helper()
	_, d := instanceOf(t, name)
	s := d.State()
	s.Pod = &instance.Pod{Namespace: namespace, Name: pod, UID: "u-" + name}
	s.Started = time.Now().Add(-age)
	if err := d.WriteState(&s); err != nil {
		t.Fatal(err)
	}
}

// NAMESPACE/POD selects the instance of a pod in every verb.
func TestPods(t *testing.T) {
	podOf(t, "67fe26081cc7", "shop", "web-7d9", time.Minute)
	podOf(t, "aaaaaaaaaaaa", "shop", "web-7d9", time.Hour) // an older sandbox of the pod
	podOf(t, "bbbbbbbbbbbb", "web-7d9", "shop", 0)
	text := ok(t, "list")
	for line := range strings.Lines(text) {
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if strings.Count(text, "pod shop/web-7d9\n") != 2 || !strings.Contains(text, "pod web-7d9/shop\n") {
		t.Error(text)
	}
	if all := decode[[]instance.Info](t, "list"); len(all) != 3 || *all[0].Pod != (instance.Pod{Namespace: "shop", Name: "web-7d9", UID: "u-67fe26081cc7"}) {
		t.Errorf("%+v", all)
	}
	if text := ok(t, "-n", "shop/web-7d9", "counters", "-o", "prom"); !strings.Contains(text, `{instance="67fe26081cc7",namespace="shop",pod="web-7d9"} `) || strings.Contains(text, "aaaaaaaaaaaa") {
		t.Error(text)
	}
	for _, args := range [][]string{{"link", "--name", "web-7d9/shop"}, {"-n", "web-7d9/shop", "cat", "/proc/version"}, {"top", "-n", "shop/web-7d9", "-b", "-c", "1"}} {
		ok(t, args...)
	}
	if text := ok(t, "-n", "shop/web-7d9", "top", "-o", "json", "-c", "1"); !strings.Contains(text, `"name":"67fe26081cc7"`) {
		t.Errorf("top shows another instance: %s", text)
	}
	refused(t, 1, []string{"logs", "shop/web-7d9"}, `instance "67fe26081cc7" keeps no log`)
	for _, verb := range []string{"netstat", "counters", "top", "web", "stop", "wait", "capture", "kill"} {
		args := []string{"-n", "shop/none", verb}
		if verb == "kill" {
			args = append(args, "dst", "127.0.0.1")
		}
		refused(t, 3, args, "pod shop/none has no running stack (looked in /run/lklrun); pods with a stack: shop/web-7d9, web-7d9/shop")
	}
	refused(t, 3, []string{"stop", "shop/67fe26081cc7"}, "pod shop/67fe26081cc7 has no running stack")
	for _, name := range []string{"a/b/c", "../67fe26081cc7", "shop/", "/web-7d9", "shop/web-7d9/u-67fe26081cc7"} {
		refused(t, 2, []string{"-n", name, "netstat"}, "expected NAMESPACE/POD")
		refused(t, 2, []string{"stop", name}, "expected NAMESPACE/POD")
	}
	if r := lklctl(t, "__complete", "netstat", "--name", ""); !strings.Contains(r.out, "shop/web-7d9\n") || !strings.Contains(r.out, "67fe26081cc7\n") {
		t.Errorf("completions: %+v", r)
	}
	if r := lklctl(t, "__complete", "-n", "shop/web-7d9", "link", "set", "l"); !strings.HasPrefix(r.out, "lo\n") {
		t.Errorf("completions of a pod: %+v", r)
	}
}
