// SPDX-License-Identifier: Apache-2.0

package counters_test

import (
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/diag/counters/prom"
	"github.com/lklrun/lklrun/internal/instance"
)

func TestPrometheus(t *testing.T) {
	var b strings.Builder
	if err := prom.Write(&b, []prom.Instance{{Name: "web", Set: counters.EngineSample()}}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`lklrun_engine_sockets_open{instance="web"} 2`,
		`lklrun_engine_process_received_total{instance="web",process="proc.12.my.pro g"} 5`,
		`lklrun_engine_process_peer_total{instance="web",process="proc.12.my.pro g",peer="tcp 10.0.0.1:80"} 6`,
		`lklrun_engine_hosted_total{instance="web",address="127.0.0.1:5432"} 8`,
		"# TYPE lklrun_engine_sockets_open gauge",
		"# HELP lklrun_engine_sockets_open Sockets of the stack that the program has now.",
	} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("no line %s in\n%s", line, b.String())
		}
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	if got, err := parser.TextToMetricFamilies(strings.NewReader(b.String())); err != nil || len(got) != 6 {
		t.Errorf("%d families, %v", len(got), err)
	}
	// A pod has labels of its own, and no value can end its label early.
	b.Reset()
	pod := &instance.Pod{Namespace: "shop", Name: "a\"} 1\n\\b"}
	if err := prom.Write(&b, []prom.Instance{{Name: "67fe26081cc7", Pod: pod, Set: counters.EngineSample()[:1]}}); err != nil {
		t.Fatal(err)
	}
	if line := `{instance="67fe26081cc7",namespace="shop",pod="a\"} 1\n\\b"} `; !strings.Contains(b.String(), line) {
		t.Errorf("no %s in\n%s", line, b.String())
	}
}
