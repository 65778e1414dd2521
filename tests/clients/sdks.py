"""The SDKs, each behind the same few methods, so that one set of tests is run with all of them.

Nothing here sets retries or error handling: the SDKs run as they come.
"""

import anthropic
import google.genai
import google.genai.errors
import openai

QUESTION = "What's the weather in Paris? ✓"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
NAME, ARGUMENTS = "get_weather", '{"city": "Paris", "days": 3}'
RESULT = "cannot reach the weather service"


class Chat:
    """openai: chat completions."""

    error = openai.APIError

    def connect(self, url, key, session):
        headers = {"x-deadstop-session": session} if session else {}
        return openai.OpenAI(base_url=f"{url}/v1", api_key=key, default_headers=headers, timeout=30)

    @staticmethod
    def path(url):
        return f"{url}/openai"

    def begin(self):
        return [{"role": "user", "content": QUESTION}]

    def ask(self, client, model, turns, stream):
        tools = [{"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}]
        return client.chat.completions.create(model=model, messages=turns, tools=tools, stream=stream)

    def result(self, turns, call):
        function = {"name": NAME, "arguments": ARGUMENTS}
        asked = {"role": "assistant", "tool_calls": [{"id": call, "type": "function", "function": function}]}
        return [*turns, asked, {"role": "tool", "tool_call_id": call, "content": RESULT}]

    def status(self, error):
        return error.status_code

    def reason(self, error):
        return error.code


class Responses(Chat):
    """openai: responses."""

    def ask(self, client, model, turns, stream):
        tools = [{"type": "function", "name": NAME, "parameters": SCHEMA, "strict": False}]
        return client.responses.create(model=model, input=turns, tools=tools, stream=stream)

    def result(self, turns, call):
        asked = {"type": "function_call", "call_id": call, "name": NAME, "arguments": ARGUMENTS}
        return [*turns, asked, {"type": "function_call_output", "call_id": call, "output": RESULT}]


class Messages:
    """anthropic: messages."""

    error = anthropic.APIError

    def connect(self, url, key, session):
        headers = {"x-deadstop-session": session} if session else {}
        return anthropic.Anthropic(base_url=url, api_key=key, default_headers=headers, timeout=30)

    @staticmethod
    def path(url):
        return f"{url}/anthropic"

    def begin(self):
        return [{"role": "user", "content": QUESTION}]

    def ask(self, client, model, turns, stream):
        tools = [{"name": NAME, "input_schema": SCHEMA}]
        return client.messages.create(model=model, max_tokens=1000, messages=turns, tools=tools, stream=stream)

    def result(self, turns, call):
        asked = {"type": "tool_use", "id": call, "name": NAME, "input": {"city": "Paris", "days": 3}}
        answer = {"type": "tool_result", "tool_use_id": call, "content": RESULT, "is_error": True}
        return [*turns, {"role": "assistant", "content": [asked]}, {"role": "user", "content": [answer]}]

    def status(self, error):
        return error.status_code

    def reason(self, error):
        return error.body["error"]["deadstop"]["reason"]


class Gemini:
    """google-genai: generate content."""

    error = google.genai.errors.APIError

    def connect(self, url, key, session):
        options = {"base_url": url, "headers": {"x-deadstop-session": session}, "timeout": 30_000}
        return google.genai.Client(api_key=key, http_options=options)

    @staticmethod
    def path(url):
        return f"{url}/gemini"

    def begin(self):
        return [{"role": "user", "parts": [{"text": QUESTION}]}]

    def ask(self, client, model, turns, stream):
        tools = [{"function_declarations": [{"name": NAME, "parameters_json_schema": SCHEMA}]}]
        ask = client.models.generate_content_stream if stream else client.models.generate_content
        return ask(model=model, contents=turns, config={"tools": tools})

    def result(self, turns, _call):
        asked = {"function_call": {"name": NAME, "args": {"city": "Paris", "days": 3}}}
        answer = {"function_response": {"name": NAME, "response": {"error": RESULT}}}
        return [*turns, {"role": "model", "parts": [asked]}, {"role": "user", "parts": [answer]}]

    def status(self, error):
        return error.code

    def reason(self, error):
        return error.details["error"]["deadstop"]["reason"]


ALL = {"openai-chat": Chat(), "openai-responses": Responses(), "anthropic": Messages(), "gemini": Gemini()}
