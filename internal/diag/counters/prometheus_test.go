// SPDX-License-Identifier: Apache-2.0

package counters_test

import (
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/diag/counters/prom"
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
}
