// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A colour has linear components from 0 to 1: red, green and blue, or lightness and two
// opponent colours.
type colour [3]float64

func parseColour(t *testing.T, hex string) (c colour) {
	t.Helper()
	for n := range c {
		v, err := strconv.ParseUint(hex[1+2*n:3+2*n], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		if s := float64(v) / 255; s <= 0.04045 { // IEC 61966-2-1
			c[n] = s / 12.92
		} else {
			c[n] = math.Pow((s+0.055)/1.055, 2.4)
		}
	}
	return c
}

func (c colour) times(m [3]colour) (out colour) {
	for n := range out {
		out[n] = max(0, m[n][0]*c[0]+m[n][1]*c[1]+m[n][2]*c[2])
	}
	return out
}

// oklab returns the colour in OKLab, where distances are as large as they look.
// https://bottosson.github.io/posts/oklab/ has the matrices.
func (c colour) oklab() colour {
	lms := c.times([3]colour{
		{0.4122214708, 0.5363325363, 0.0514459929}, {0.2119034982, 0.6806995451, 0.1073969566}, {0.0883024619, 0.2817188376, 0.6299787005},
	})
	for n := range lms {
		lms[n] = math.Cbrt(lms[n])
	}
	m := [3]colour{{0.2104542553, 0.7936177850, -0.0040720468}, {1.9779984951, -2.4285922050, 0.4505937099}, {0.0259040371, 0.7827717662, -0.8086757660}}
	var out colour
	for n := range out {
		out[n] = m[n][0]*lms[0] + m[n][1]*lms[1] + m[n][2]*lms[2]
	}
	return out
}

func (c colour) luminance() float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] }

// contrast is the contrast ratio of WCAG 2.
func contrast(a, b colour) float64 {
	x, y := a.luminance()+0.05, b.luminance()+0.05
	return max(x, y) / min(x, y)
}

// sights are simulations of colour vision (Machado, Oliveira and Fernandes, 2009).
var sights = map[string][3]colour{
	"normal":       {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"tritanopia":   {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

// The colours of lines are distinct in each colour scheme, also for colour-blind users,
// and stand out from the background.
func TestColours(t *testing.T) {
	const (
		leastDistance = 0.1 // a barely visible difference is 0.02
		leastContrast = 2.7 // thick lines; the first colours of each scheme have more than 3
	)
	text, err := page.ReadFile("page/style.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, ok := strings.Cut(string(text), "@media (prefers-color-scheme: dark)")
	if !ok {
		t.Fatal("no dark scheme")
	}
	dark, _, _ = strings.Cut(dark, "\n}\n")
	for name, css := range map[string]string{"light": light, "dark": dark} {
		back := parseColour(t, regexp.MustCompile(`--panel: (#\w{6})`).FindStringSubmatch(css)[1])
		var lines []string
		for _, m := range regexp.MustCompile(`--line-\d: (#\w{6})`).FindAllStringSubmatch(css, -1) {
			lines = append(lines, m[1])
		}
		if want := fmt.Sprintf("COLOURS = %d;", len(lines)); !strings.Contains(read(t, "page/graph.js"), want) || len(lines) < 6 {
			t.Errorf("%s: %d colours, and graph.js has no %q", name, len(lines), want)
		}
		for n, a := range lines {
			if c := contrast(parseColour(t, a), back); c < leastContrast {
				t.Errorf("%s: %s has a contrast of %.2f", name, a, c)
			}
			for _, b := range lines[:n] {
				for sight, m := range sights {
					x, y := parseColour(t, a).times(m).oklab(), parseColour(t, b).times(m).oklab()
					if d := math.Sqrt((x[0]-y[0])*(x[0]-y[0]) + (x[1]-y[1])*(x[1]-y[1]) + (x[2]-y[2])*(x[2]-y[2])); d < leastDistance {
						t.Errorf("%s: %s and %s differ by %.3f with %s vision", name, a, b, d, sight)
					}
				}
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := page.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
