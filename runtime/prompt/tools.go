package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// The text around the tool schemas (serving.md 6.2).
const (
	toolsBefore = `## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set ` + "`string=\"true\"`" + `. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set ` + "`string=\"false\"`" + `.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

`
	toolsAfter = `

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
`
)

// toolSchemas writes one line of JSON for each tool.
func toolSchemas(tools []json.RawMessage) (string, error) {
	lines := make([]string, len(tools))
	for i, raw := range tools {
		function, err := toolFunction(raw)
		if err != nil {
			return "", fmt.Errorf("tools[%d]: %w", i, err)
		}
		lines[i] = function.String()
	}
	return strings.Join(lines, "\n"), nil
}

// toolFunction is the function object of a tool, as the client wrote it, with its namespace folded into
// name and description (serving.md 6.9).
func toolFunction(raw json.RawMessage) (value, error) {
	tool, err := parseValue(raw)
	if err != nil {
		return value{}, err
	}
	function, ok := tool.get("function")
	if !ok || function.kind != jsonObject {
		return value{}, errors.New(`a tool needs a "function" object`)
	}
	name, ok := function.get("name")
	if !ok || name.kind != jsonString || name.text == "" {
		return value{}, errors.New("the function has no name")
	}
	space, description, err := toolNamespace(tool, function)
	if err != nil {
		return value{}, err
	}
	if space == "" {
		return function, nil
	}
	full, err := joinName(space, name.text)
	if err != nil {
		return value{}, err
	}
	function = function.without("namespace").with("name", value{kind: jsonString, text: full})
	if description != "" {
		if own, ok := function.get("description"); ok && own.kind == jsonString && own.text != "" {
			description += "\n" + own.text
		}
		function = function.with("description", value{kind: jsonString, text: description})
	}
	return function, nil
}

// ToolName is the name by which the model knows a tool: that of its function, with its namespace before it.
func ToolName(tool json.RawMessage) (string, error) {
	function, err := toolFunction(tool)
	if err != nil {
		return "", err
	}
	name, _ := function.get("name")
	return name.text, nil
}

func toolNamespace(tool, function value) (name, description string, err error) {
	for _, holder := range []value{tool, function} {
		space, ok := holder.get("namespace")
		if !ok || space.kind == jsonNull {
			continue
		}
		given, about := space, value{}
		if space.kind == jsonObject {
			given, _ = space.get("name")
			about, _ = space.get("description")
		}
		if given.kind != jsonString || given.text == "" {
			return "", "", errors.New("a namespace must be a name, or an object with a name")
		}
		if name != "" && name != given.text {
			return "", "", fmt.Errorf("the tool is in two namespaces, %q and %q", name, given.text)
		}
		name = given.text
		if about.text != "" {
			description = about.text
		}
	}
	return name, description, nil
}

// joinName is the name by which the model knows a tool of a namespace.
func joinName(space, name string) (string, error) {
	if space == "" {
		return name, nil
	}
	if own, _ := SplitToolName(name); own != "" {
		if own != space {
			return "", fmt.Errorf("tool %q is in namespace %q", name, space)
		}
		return name, nil
	}
	return space + "::" + name, nil
}

// SplitToolName splits the name of a tool of a namespace, "space::tool". Names without exactly one "::"
// have no namespace.
func SplitToolName(full string) (space, name string) {
	space, name, found := strings.Cut(full, "::")
	if !found || space == "" || name == "" || strings.Contains(name, "::") {
		return "", full
	}
	return space, name
}

// writeCalls writes tool calls in DSML (serving.md 6.3).
func writeCalls(w *writer, calls []ToolCall) error {
	w.template(callsOpen + "\n")
	for i, call := range calls {
		name, err := joinName(call.Namespace, call.Name)
		if err != nil {
			return fmt.Errorf("tool_calls[%d]: %w", i, err)
		}
		w.template(invokeOpen)
		w.text(name + "\">\n")
		for j, p := range callArguments(call.Arguments) {
			if j > 0 {
				w.text("\n")
			}
			w.template(parameterOpen)
			w.text(p.key)
			if p.value.kind == jsonString {
				w.text(flagTrue + p.value.text)
			} else {
				w.text(flagFalse + p.value.String())
			}
			w.template(parameterClose)
		}
		w.template("\n" + invokeClose + "\n")
	}
	w.template(callsClose)
	return nil
}

// callArguments reads the arguments of a call: an object, or a string that holds one, itself perhaps
// inside another string. Anything else is the single argument "arguments".
func callArguments(raw json.RawMessage) []member {
	if len(raw) == 0 {
		return nil
	}
	given, err := parseValue(raw)
	if err != nil {
		return []member{{"arguments", value{kind: jsonString, text: string(raw)}}}
	}
	v := given
	for range 2 {
		if v.kind != jsonString {
			break
		}
		if v, err = parseValue([]byte(v.text)); err != nil {
			break
		}
	}
	if v.kind == jsonObject {
		return v.members
	}
	return []member{{"arguments", given}}
}
