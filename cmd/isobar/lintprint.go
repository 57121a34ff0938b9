package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"isobar.dev/policy/lint"
)

// where says which object it is about, and which rule of it.
func (f lintFinding) where() string {
	if f.Rule == nil {
		return f.Object
	}
	return f.Object + " " + f.Rule.Rule
}

// place says where that is written; empty where it is not known.
func (f lintFinding) place() string {
	if f.File == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d: ", f.File, f.Line)
}

func (a lintAnswer) table(out io.Writer) error {
	for _, f := range a.Findings {
		fmt.Fprintf(out, "%s%s: %s: %s [%s]\n", printable(f.place()), f.Severity, printable(f.where()), printable(f.Message), f.ID)
		if f.Witness != nil {
			fmt.Fprintf(out, "  such as %s\n", printable(f.Witness.String()))
		}
		fmt.Fprintf(out, "  fix: %s\n", printable(f.Fix))
	}
	if len(a.Findings) > 0 {
		fmt.Fprintln(out)
	}
	for _, text := range a.Unchecked {
		fmt.Fprintf(out, "Not looked at: %s.\n", printable(text))
	}
	_, err := fmt.Fprintln(out, a.total())
	return err
}

func (a lintAnswer) total() string {
	if len(a.Findings) == 0 {
		return "Nothing was found."
	}
	var parts []string
	for _, name := range lintSeverities {
		parts = append(parts, count(a.Totals[name], name))
	}
	return strings.Join(parts, ", ") + "."
}

func (a lintAnswer) markdown(out io.Writer) error {
	if len(a.Findings) > 0 {
		fmt.Fprint(out, "| | where | what | fix |\n|---|---|---|---|\n")
	}
	for _, f := range a.Findings {
		what := f.Message
		if f.Witness != nil {
			what += "; such as " + f.Witness.String()
		}
		fmt.Fprintf(out, "| %s: %s | %s | %s | %s |\n", f.Severity, f.ID, inMarkdown(f.place()+f.where()), inMarkdown(what), inMarkdown(f.Fix))
	}
	if len(a.Findings) > 0 {
		fmt.Fprintln(out)
	}
	for _, text := range a.Unchecked {
		fmt.Fprintf(out, "Not looked at: %s.\n\n", inMarkdown(text))
	}
	_, err := fmt.Fprintln(out, a.total())
	return err
}

// What follows is the Static Analysis Results Interchange Format, version 2.1.0, of which it has
// what an author of findings has to say.

type sarifLog struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool        sarifTool         `json:"tool"`
	Invocations []sarifInvocation `json:"invocations"`
	Results     []sarifResult     `json:"results"`
}

type sarifTool struct {
	Driver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	} `json:"driver"`
}

type sarifText struct {
	Text string `json:"text"`
}

type sarifRule struct {
	ID               string     `json:"id"`
	ShortDescription sarifText  `json:"shortDescription"`
	Configuration    sarifLevel `json:"defaultConfiguration"`
}

type sarifLevel struct {
	Level string `json:"level"`
}

type sarifInvocation struct {
	Successful    bool                `json:"executionSuccessful"`
	Notifications []sarifNotification `json:"toolExecutionNotifications,omitempty"`
}

type sarifNotification struct {
	Level   string    `json:"level"`
	Message sarifText `json:"message"`
}

type sarifResult struct {
	RuleID       string            `json:"ruleId"`
	RuleIndex    int               `json:"ruleIndex"`
	Level        string            `json:"level"`
	Message      sarifText         `json:"message"`
	Locations    []sarifLocation   `json:"locations"`
	Fingerprints map[string]string `json:"partialFingerprints"`
	Properties   lintFinding       `json:"properties"`
}

type sarifLocation struct {
	Physical *sarifPhysical `json:"physicalLocation,omitempty"`
	Logical  []sarifLogical `json:"logicalLocations"`
}

type sarifPhysical struct {
	Artifact struct {
		URI string `json:"uri"`
	} `json:"artifactLocation"`
	Region struct {
		StartLine int `json:"startLine"`
	} `json:"region"`
}

type sarifLogical struct {
	Name string `json:"fullyQualifiedName"`
	Kind string `json:"kind"`
}

func sarifOf(a lintAnswer) sarifLog {
	run := sarifRun{Results: []sarifResult{}, Invocations: []sarifInvocation{{Successful: true}}}
	run.Tool.Driver.Name = "isobar lint"
	for _, c := range lint.Checks {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{c.ID, sarifText{c.Title}, sarifLevel{c.Severity.String()}})
	}
	for _, text := range a.Unchecked {
		run.Invocations[0].Notifications = append(run.Invocations[0].Notifications, sarifNotification{"note", sarifText{"Not looked at: " + text}})
	}
	for _, f := range a.Findings {
		text := printable(f.where()) + ": " + f.Message + "."
		if f.Witness != nil {
			text += " Such as " + f.Witness.String() + "."
		}
		at := sarifLocation{Logical: []sarifLogical{{f.where(), "resource"}}}
		if f.File != "" && f.File != "-" {
			at.Physical = &sarifPhysical{}
			at.Physical.Artifact.URI = fileURI(f.File)
			at.Physical.Region.StartLine = f.Line
		}
		// What stays the same while lines move.
		sum := sha256.Sum256([]byte(strings.Join([]string{f.ID, f.Object, f.Field, f.Message}, "\x00")))
		run.Results = append(run.Results, sarifResult{
			RuleID: f.ID, RuleIndex: slices.IndexFunc(lint.Checks, func(c lint.Check) bool { return c.ID == f.ID }), Level: f.Severity,
			Message: sarifText{printable(text + " " + f.Fix)}, Locations: []sarifLocation{at}, Fingerprints: map[string]string{"isobarFinding/v1": hex.EncodeToString(sum[:16])}, Properties: f,
		})
	}
	return sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}}
}

// fileURI returns the path of a file as a URI: relative if the path is.
func fileURI(path string) string {
	u := url.URL{Path: filepath.ToSlash(path)}
	if filepath.IsAbs(path) {
		u.Scheme = "file"
	}
	return u.String()
}
